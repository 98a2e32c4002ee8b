"""docs/commands.md lists the shipped catalogue as it is. Run this file to write the table anew."""

from pathlib import Path

from hermesd.control.settings import load_policy
from hermesd.control.values import is_required

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "commands.md"
BEGIN, END = "<!-- the catalogue begins -->\n", "<!-- the catalogue ends -->\n"


def table():
    commands = load_policy([ROOT / "conf.d"]).commands
    lines = ["| command | arguments | effect | what it does |", "|---|---|---|---|"]
    for name, command in sorted(commands.items()):
        spec = command.spec
        asked = [(key, argument) for key, argument in spec.args.items() if not argument.of]
        names = [key if is_required(argument) else f"[{key}]" for key, argument in asked]
        effect = "ticket" if spec.ticket else str(spec.effect)
        told = spec.description.partition(". ")[0].replace("|", "\\|")
        lines.append(f"| `{name}` | {' '.join(names)} | {effect} | {told} |")
    return "\n".join(lines) + "\n"


def test_the_page_about_commands_is_the_catalogue():
    page = PAGE.read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == table()


if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(head + BEGIN + table() + END + rest.partition(END)[2])
