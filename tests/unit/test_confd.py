"""Layered TOML: what wins, and where a fault stands."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from hermesd.confd import (
    MAX_FILE_BYTES,
    ConfigError,
    Document,
    find_line,
    merge,
    named,
    read_file,
    read_folder,
    shipped,
)


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(default=1, ge=1)
    names: list[int] = []


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    part: Part = Part()
    parts: list[Part] = []
    by_name: dict[str, Part] = {}


def layer(root: Path, name: str, files: dict[str, str]) -> Path:
    for file, text in files.items():
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / name


def read(tmp_path: Path, text: str) -> Document:
    found = read_file([layer(tmp_path, "etc", {"a.toml": text})], "a.toml")
    assert found is not None
    return found


def faults(tmp_path: Path, text: str) -> list[tuple[str, int, str]]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text).read(Whole)
    return [(fault.file.name, fault.line, fault.reason) for fault in caught.value.faults]


def test_a_file_that_no_layer_has_is_none(tmp_path):
    assert read_file([tmp_path, tmp_path / "missing"], "a.toml") is None
    assert read_folder([tmp_path], "rules") == []


def test_a_file_of_a_later_layer_replaces_the_whole_file_of_an_earlier_one(tmp_path):
    layers = [
        layer(tmp_path, "usr", {"a.toml": 'name = "usr"\nold = 1\n'}),
        layer(tmp_path, "etc", {"a.toml": 'name = "etc"\n'}),
    ]
    found = read_file(layers, "a.toml")
    assert found is not None
    assert (found.data, found.path) == ({"name": "etc"}, tmp_path / "etc/a.toml")


def test_drop_ins_of_any_layer_are_merged_table_by_table_in_order(tmp_path):
    layers = [
        layer(
            tmp_path,
            "usr",
            {
                "a.toml": 'name = "usr"\n[part]\nsize = 1\nnames = [1, 2]\n',
                "a.toml.d/10.toml": "[part]\nsize = 2\n",
            },
        ),
        layer(
            tmp_path, "etc", {"a.toml.d/20.toml": "[part]\nnames = [3]\n", "a.toml.d/note.txt": "not TOML ["}
        ),
    ]
    found = read_file(layers, "a.toml")
    assert found is not None
    assert found.data == {"name": "usr", "part": {"size": 2, "names": [3]}}


def test_drop_ins_stand_even_where_the_file_was_replaced_or_never_was(tmp_path):
    usr = layer(
        tmp_path, "usr", {"a.toml": "old = 1\n", "a.toml.d/1.toml": "x = 1\n", "b.toml.d/1.toml": "y = 1\n"}
    )
    etc = layer(tmp_path, "etc", {"a.toml": "new = 1\n"})
    found = read_file([usr, etc], "a.toml")
    assert found is not None
    assert found.data == {"new": 1, "x": 1}
    alone = read_file([usr, etc], "b.toml")
    assert alone is not None
    assert alone.data == {"y": 1}


def test_a_folder_is_the_union_of_its_layers_by_file_name(tmp_path):
    usr = layer(tmp_path, "usr", {"rules/b.toml": "v = 1", "rules/a.toml": "v = 1", "rules/x.txt": "["})
    etc = layer(tmp_path, "etc", {"rules/b.toml": "v = 2", "rules/c.toml": "v = 2"})
    found = read_folder([usr, etc], "rules")
    assert [(document.name, document.data["v"]) for document in found] == [("a", 1), ("b", 2), ("c", 2)]


def test_every_broken_file_of_a_folder_is_named_and_not_only_the_first(tmp_path):
    etc = layer(tmp_path, "etc", {"rules/a.toml": "x = ", "rules/b.toml": "x = 1", "rules/c.toml": "y = [1"})
    with pytest.raises(ConfigError) as caught:
        read_folder([etc], "rules")
    assert [fault.file.name for fault in caught.value.faults] == ["a.toml", "c.toml"]


def test_a_fault_in_a_drop_in_names_the_drop_in(tmp_path):
    etc = layer(
        tmp_path,
        "etc",
        {"a.toml": 'name = "x"\n[part]\nsize = 5\n', "a.toml.d/1.toml": "\n[part]\nsize = 0\n"},
    )
    found = read_file([etc], "a.toml")
    assert found is not None
    with pytest.raises(ConfigError) as caught:
        found.read(Whole)
    (fault,) = caught.value.faults
    assert (fault.file.name, fault.line) == ("1.toml", 3)
    assert str(fault).startswith(f"{etc}/a.toml.d/1.toml:3: part.size: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('name = "x"\nsize = \n', 2),
        ('name = "x"\nname = "y"\n', 2),
        ('name = "x"\n\n\n[part\n', 4),
        ('name = "x\n', 1),
        ("\ufeffname = 1\n", 1),
        ("a = [1,\n2,\n", 3),
    ],
)
def test_what_is_no_toml_is_a_fault_with_its_line(tmp_path, text, line):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    (fault,) = caught.value.faults
    assert fault.line == line
    assert fault.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('name = "x"\n\n[part]\nsize = 0\n', (4, "part.size: ")),
        ('name = "x"\npart.size = 0\n', (2, "part.size: ")),
        ('name = "x"\npart = { size = 0 }\n', (2, "part.size: ")),
        ('name = "x"\n[part]\nsiez = 1\n', (3, "part.siez: there is no such setting")),
        ('name = "x"\nnmae = 1\n', (2, "nmae: there is no such setting")),
        ("\n[part]\nsize = 1\n", (0, "name is missing")),
        ('name = "x"\n[[parts]]\nsize = 1\n[[parts]]\nsize = 0\n', (5, "parts.1.size: ")),
        ('name = "x"\n[by_name.a]\nsize = 1\n[by_name."b"]\nsize = 0\n', (5, "by_name.b.size: ")),
        ('name = "x"\n[by_name."a.b"]\nsize = 0\n', (3, "by_name.a.b.size: ")),
        ('name = "x"\n[part]\nnames = [\n  1,\n  "two",\n]\n', (3, "part.names.1: ")),
        ('name = """\nsize = 0\n"""\n[part]\nsize = 0\n', (5, "part.size: ")),
        ('name = "x" # [part]\n# size = 1\n[part] # here\n"size" = 0\n', (4, "part.size: ")),
        ("name = 5\n", (1, "name: ")),
    ],
)
def test_a_wrong_value_is_a_fault_at_its_own_line(tmp_path, text, expected):
    (found,) = faults(tmp_path, text)
    line, reason = expected
    assert (found[1], found[2][: len(reason)]) == (line, reason)


def test_all_faults_of_a_file_are_told_at_once(tmp_path):
    text = 'extra = 1\n[part]\nsize = 0\n[[parts]]\nsize = "a"\n'
    assert [line for _file, line, _reason in faults(tmp_path, text)] == [0, 3, 5, 1]


def test_a_validators_own_words_are_given_without_decoration(tmp_path):
    from pydantic import field_validator

    class Strict(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def _refuse(cls, _value: str) -> str:
            raise ValueError("that name is taken")

    with pytest.raises(ConfigError, match="name: that name is taken"):
        read(tmp_path, 'name = "x"\n').read(Strict)


def test_no_value_of_the_file_stands_in_a_fault(tmp_path):
    assert all(
        "hunter2" not in reason for _f, _l, reason in faults(tmp_path, 'name = "x"\npart = "hunter2"\n')
    )


def test_a_file_that_is_too_large_or_no_text_or_not_readable_is_a_fault(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "big.toml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    (etc / "bytes.toml").write_bytes(b'name = "\xff"')
    for name, reason in (("big.toml", "larger than"), ("bytes.toml", "not UTF-8 at byte 8")):
        with pytest.raises(ConfigError, match=reason):
            read_file([etc], name)


def test_a_file_that_may_not_be_read_is_a_fault(tmp_path):
    (tmp_path / "a.toml").symlink_to("a.toml")  # nobody can follow it, not even root
    with pytest.raises(ConfigError, match=r"a\.toml: Too many levels"):
        read_file([tmp_path], "a.toml")


def test_a_link_that_leads_nowhere_is_a_fault_and_not_an_absent_file(tmp_path):
    etc = layer(tmp_path, "etc", {"rules/b.toml": "x = 1"})
    (etc / "rules/a.toml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"a\.toml: No such file"):
        read_folder([etc], "rules")


def test_a_folder_where_a_file_should_be_is_a_fault(tmp_path):
    (tmp_path / "rules/a.toml").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_folder([tmp_path], "rules")


def test_a_link_to_nothing_masks_the_file_of_an_earlier_layer_and_its_drop_ins(tmp_path):
    usr = layer(
        tmp_path, "usr", {"rules/a.toml": "x = 1", "rules/b.toml": "x = 1", "rules/a.toml.d/1.toml": "y = 1"}
    )
    (tmp_path / "etc/rules").mkdir(parents=True)
    (tmp_path / "etc/rules/a.toml").symlink_to("/dev/null")
    assert [found.name for found in read_folder([usr, tmp_path / "etc"], "rules")] == ["b"]


def test_a_document_is_named_after_its_file_unless_it_names_itself(tmp_path):
    assert named(read(tmp_path, "x = 1")).data == {"name": "a", "x": 1}
    assert named(read(tmp_path, 'name = "own"')).data == {"name": "own"}


def test_merging_changes_neither_side():
    base, over = {"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2]}
    assert merge(base, over) == {"a": {"b": 1, "d": 2}, "c": [2]}
    assert (base, over) == ({"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2]})


def test_a_key_that_is_nowhere_has_no_line():
    assert find_line("a = 1\n", ("b",)) == 0
    assert find_line("", ()) == 0


def test_the_defaults_that_come_with_the_program_are_found():
    assert (shipped() / "rules").is_dir()
