from __future__ import annotations

import pytest

from hermesd.agent.references import Reference, Unresolved, parse_template, render, resolve, show

SCOPE = {
    "event": {"value": 82.4, "labels": {"path": "/srv/app"}, "text": None},
    "usage": {
        "rows": ({"used_percent": 81.0, "size_bytes": 24_000_000, "path": "/srv/app"}, {"used_percent": 3}),
        "summary": "81 % used",
        "gain": {"freed_bytes": 14_200_000},
    },
}


def test_an_argument_that_is_one_reference_keeps_the_values_type():
    assert resolve("${usage.rows.0.size_bytes}", SCOPE) == 24_000_000
    assert resolve("${event.labels.path}", SCOPE) == "/srv/app"
    assert resolve(["${event.value}", 3, "plain"], SCOPE) == [82.4, 3, "plain"]


def test_an_argument_takes_a_whole_list_or_table_as_plain_json():
    assert resolve("${usage.rows}", SCOPE) == [SCOPE["usage"]["rows"][0], {"used_percent": 3}]
    assert resolve("${event.labels}", SCOPE) == {"path": "/srv/app"}


def test_a_reference_inside_an_arguments_text_is_written_into_it():
    assert resolve("${event.labels.path}/log", SCOPE) == "/srv/app/log"


def test_only_texts_and_whole_numbers_become_a_part_of_an_arguments_text():
    assert isinstance(resolve("at ${event.labels}", SCOPE), Unresolved)
    assert isinstance(resolve("at ${event.value}", SCOPE), Unresolved)


@pytest.mark.parametrize(
    ("reference", "missing"),
    [
        ("${nothing.here}", "nothing"),
        ("${usage.rows.7.path}", "7"),
        ("${usage.rows.-1.path}", "-1"),
        ("${usage.rows.0.inodes}", "inodes"),
        ("${event.text}", "text"),
        ("${usage.summary.length}", "length"),
        ("${usage.rows.99999999999999999999.path}", "99999999999999999999"),
    ],
)
def test_what_cannot_be_looked_up_is_a_reason_that_names_it(reference, missing):
    found = resolve(reference, SCOPE)
    assert isinstance(found, Unresolved)
    assert reference in found.reason
    assert found.reason.endswith(f"has no {missing}")


def test_the_last_row_has_a_name():
    assert resolve("${usage.rows.last.used_percent}", SCOPE) == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("${usage.gain.freed_bytes|bytes} freed", "14.2 MB freed"),
        ("${event.value|percent}", "82.4 %"),
        ("${usage.rows.0.used_percent|percent}", "81 %"),
        ("${usage.rows.0.size_bytes|count}", "24,000,000"),
        ("${usage.rows|count} rows", "2 rows"),
        ("${event.value}", "82.4"),
        ("no reference, $5 and {braces}", "no reference, $5 and {braces}"),
    ],
)
def test_values_are_written_for_people(text, shown):
    assert render(text, SCOPE) == shown


def test_a_form_that_needs_a_figure_refuses_a_text():
    found = render("${usage.summary|bytes}", SCOPE)
    assert isinstance(found, Unresolved)
    assert "not a figure" in found.reason


def test_what_comes_from_outside_stays_on_one_line_and_is_cut():
    shown = show("a\nb\x1b[31mc\u202e" + "x" * 1000)
    assert shown.startswith("a\\nb\\x1b[31mc\\u202e")
    assert shown.endswith("…[cut]")
    assert len(shown) == 300


def test_a_value_that_looks_like_a_reference_is_not_looked_up_again():
    assert render("${a.b}", {"a": {"b": "${a.secret}", "secret": "x"}}) == "${a.secret}"


@pytest.mark.parametrize(
    "text",
    [
        "${",
        "${}",
        "${a b}",
        "${a..b}",
        "${a.b|nonsense}",
        "${a.b",
        "${a${b}}",
        "${a.b|}",
        "${a|bytes|count}",
        "${.a}",
    ],
)
def test_a_reference_that_is_malformed_is_refused_when_it_is_read(text):
    with pytest.raises(ValueError, match=r"\$\{|reference"):
        parse_template(text)


def test_a_template_is_its_literal_parts_and_references_in_order():
    assert parse_template("a ${b.0|bytes} c") == ("a ", Reference(("b", "0"), "bytes"), " c")
