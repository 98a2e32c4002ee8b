"""Values are taken as they are or refused: nothing is coerced, nothing deceives, no pattern costs much."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hermesd.control.moments import parse_moment, parse_span
from hermesd.control.patterns import MAX_STEPS, compiled, pattern_fault
from hermesd.control.values import OUTSIDE, Argument, argv_text, order_fault, value_fault
from hermesd.protocol import ProtocolError, check_json

ROOTS = ("/var/log",)


def argument(kind, **more):
    return Argument(type=kind, description="for the tests", **more)


INTEGER = argument("integer", minimum=0, maximum=1000)
TEXT = argument("string")
PATTERN = argument("string", pattern="[a-z]+[0-9]*")
UNIT = argument("unit")
PATH = argument("path", roots=ROOTS)
SEARCH = argument("string", any_script=True)
TIME = argument("datetime")
SPAN = argument("duration", minimum=1, maximum=86_400)
DIGEST = argument("artifact")
LIST = argument("list", values={"a": "the first", "b": "the second"}, max_items=2)
EVERY = (INTEGER, TEXT, PATTERN, UNIT, PATH, SEARCH, TIME, SPAN, DIGEST, LIST)


@pytest.mark.parametrize(
    "value",
    ["१२", "1_000", " 12\n", "12", True, False, None, 1.0, 1.5, -1, 1001, 10**30, [], {}, float("nan")],
    ids=repr,
)
def test_only_an_integer_within_its_range_is_an_integer(value):
    assert value_fault(INTEGER, value, ())


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_a_number_that_is_none_does_not_even_get_through_the_border(text):
    with pytest.raises(ProtocolError):
        check_json(b'{"limit": %s}' % text.encode())


def test_minus_zero_is_no_second_zero():
    assert value_fault(INTEGER, json.loads("-0"), ()) == ""  # JSON has one integer zero
    assert "sign" in value_fault(argument("number"), -0.0, ())
    assert value_fault(argument("number"), 0.0, ()) == ""


@pytest.mark.parametrize(
    "value",
    [
        "nginx\n",
        "\nnginx",
        "nginx\0",
        "nginx\r",
        "ｎｇｉｎｘ",
        "ngіnx",
        "\u212aelvin",
        "nginx\u200b",
        "ng\u202einx",
    ],
    ids=ascii,
)
def test_a_pattern_matches_the_whole_text_and_ascii_alone(value):
    assert value_fault(PATTERN, value, ())
    assert value_fault(UNIT, f"{value}.service", ())


def test_a_unit_is_named_as_systemd_names_it():
    for good in ("nginx.service", "getty@tty1.service", "dev-sda1.mount", "a.timer"):
        assert value_fault(UNIT, good, ()) == ""
    for bad in ("nginx", "-H.service", "../x.service", "a b.service", "a.service;b", "@.service", "x.conf"):
        assert value_fault(UNIT, bad, ())


@pytest.mark.parametrize(
    "path",
    [
        "/var/log/../../etc/shadow",
        "/var/log2/x",
        "/var/log/./x",
        "/var/log//x",
        "/var/log/",
        "var/log/x",
        "/var/log/．．／x",
        "/var/log/a\nb",
        "/var/log/a\0b",
        "/var/log/a\ud800",
        "/var/log/a*",
        "/var/log/a;b",
        "/var/log/$x",
        "-rf",
        "",
        "/",
    ],
    ids=ascii,
)
def test_a_path_is_plain_in_normal_form_and_beneath_its_root(path):
    assert value_fault(PATH, path, ROOTS)


def test_a_path_beneath_the_root_by_whole_components_is_taken():
    assert value_fault(PATH, "/var/log/nginx/access.log", ROOTS) == ""
    assert value_fault(PATH, "/var/log2", ROOTS) == OUTSIDE


@pytest.mark.parametrize("value", ["-delete", "-exec", "--files0-from=/etc/shadow", "-", "-rf"])
def test_no_text_can_be_an_option(value):
    assert "'-'" in value_fault(TEXT, value, ())
    assert "'-'" in value_fault(SEARCH, value, ())


@pytest.mark.parametrize("value", ["磁盘已满", "Größe", "naïve café", "Out of memory", "错误：磁盘"])
def test_a_text_that_is_only_searched_for_may_be_in_any_script(value):
    assert value_fault(SEARCH, value, ()) == ""
    assert value.isascii() or value_fault(TEXT, value, ())


@pytest.mark.parametrize(
    "value",
    [
        "a\u202eb",
        "a\u200bb",
        "a\ufe0fb",
        "a\u034fb",
        "\u3164",
        "\u212a",
        "e\u0301",
        "a\u2028b",
        "a\tb",
        "\ud800",
        "\ue000",
    ],
    ids=ascii,
)
def test_what_cannot_be_seen_or_has_a_plainer_spelling_is_refused_in_any_script(value):
    assert value_fault(SEARCH, value, ())


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-30",
        "2026-11-30T03:00:00",
        "2026-11-30 03:00:00",
        "2026-11-30T03:00:00+01:00",
        "2026-02-30T00:00:00Z",
        "2026-11-30T24:00:01Z",
        "0000-01-01T00:00:00Z",
        "２026-11-30T03:00:00Z",
        "now",
        "-1h",
        "2026-11-30T03:00:00Z\n",
        1796080722,
        None,
    ],
    ids=ascii,
)
def test_a_point_in_time_has_one_spelling(value):
    assert value_fault(TIME, value, ())


def test_a_point_in_time_is_told_to_programs_as_they_read_it():
    assert value_fault(TIME, "2026-11-30T03:00:00Z", ()) == ""
    assert argv_text(TIME, "2026-11-30T03:00:00Z") == "2026-11-30 03:00:00"


def test_an_end_before_its_beginning_is_refused_by_name():
    both = {"since": TIME, "until": argument("datetime", after="since")}
    early, late = "2026-11-30T03:00:00Z", "2026-11-30T03:00:01Z"
    assert order_fault(both, {"since": early, "until": late}) == ("", "")
    assert order_fault(both, {"since": early, "until": early}) == ("", "")
    assert order_fault(both, {"since": late, "until": early}) == ("until", "must not be before since")


@pytest.mark.parametrize(
    "value", ["15", "m15", "0s", "1.5h", "-5m", "15 m", "2d1h", "99999999999d", "1w", 900, "१५m"], ids=ascii
)
def test_a_span_has_one_spelling_and_stays_in_its_range(value):
    assert value_fault(SPAN, value, ())


def test_a_span_is_told_to_programs_in_seconds():
    for text, seconds in (("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86_400)):
        assert value_fault(SPAN, text, ()) == ""
        assert argv_text(SPAN, text) == str(seconds)
    assert "at most" in value_fault(SPAN, "2d", ())


@pytest.mark.parametrize(
    "value", ["", "a" * 63, "A" * 64, "g" * 64, "../" + "a" * 61, "a" * 64 + "\n", "/" + "a" * 63]
)
def test_an_artifact_is_named_by_its_digest_and_by_nothing_that_is_a_path(value):
    assert value_fault(DIGEST, value, ())


def test_a_list_holds_each_of_its_values_once_and_not_too_many():
    assert value_fault(LIST, ["a", "b"], ()) == ""
    for bad in ([], ["a", "a"], ["c"], ["a", "b", "a"], "a", {"a": 1}, [["a"]], [None]):
        assert value_fault(LIST, bad, ())


def anything():
    leaf = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.binary().map(lambda b: b.decode("latin-1"))
    )
    return st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    )


@given(anything())
def test_whatever_is_asked_is_judged_without_a_fault_of_our_own_and_what_passes_is_harmless(value):
    for kind in EVERY:
        if value_fault(kind, value, ROOTS):
            continue
        text = argv_text(kind, value)
        assert text.isprintable()
        assert kind is INTEGER or not text.startswith("-")
        assert kind is SEARCH or text.isascii()
        assert type(value) is int if kind is INTEGER else isinstance(value, str | list)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_a_name_with_any_character_beyond_ascii_is_never_taken_for_one_without(text):
    if not text.isascii():
        for kind in (TEXT, PATTERN, UNIT, PATH, TIME, SPAN, DIGEST):
            assert value_fault(kind, f"/var/log/{text}" if kind is PATH else text, ROOTS)


@given(st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)))
def test_every_second_of_the_calendar_is_a_point_in_time(text):
    assert parse_moment(text) is not None


@given(st.text(alphabet="0123456789smhd", max_size=12))
def test_a_span_that_is_taken_is_positive(text):
    assert (parse_span(text) or 1) > 0


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a|aa)+",
        "(?:a*)*b",
        r"(\w+\s?)*",
        "(?=a)b",
        r"(a)\1",
        "(?P<x>a)",
        "(?i)nginx",
        "a+b+c+d+e+",
        r"\d+\d+\d+\d+\d+",
        "[a-z",
        "a{1,9}{1,9}",
        r"\Z",
        "^a$",
    ],
)
def test_a_pattern_whose_cost_has_no_bound_is_refused_at_load(pattern):
    assert pattern_fault(pattern, 256)
    with pytest.raises(ValidationError):
        argument("string", pattern=pattern)


@pytest.mark.parametrize(
    "pattern", ["[a-z]+", r"[A-Za-z0-9_.-]{1,64}", r"v\d+\.\d+", "(?:eth|wlan)[0-9]{1,3}", "[^/]+", "[]a]+"]
)
def test_an_ordinary_pattern_is_taken(pattern):
    assert pattern_fault(pattern, 200) == ""


TOKENS = st.sampled_from(["a", "[ab]", "[^b]", r"\d", r"\w", "(?:a|b)", "(?:a)?", "-"])
REPEATS = st.sampled_from(["", "+", "*", "?", "{2}", "{0,9}"])


@given(
    st.lists(st.tuples(TOKENS, REPEATS).map("".join), min_size=1, max_size=8).map("".join),
    st.sampled_from("ab1"),
)
def test_what_is_taken_as_a_pattern_never_takes_long(pattern, char):
    length = 256
    if pattern_fault(pattern, length):
        return
    began = time.perf_counter()
    compiled(pattern).fullmatch(char * (length - 1) + "!")
    assert time.perf_counter() - began < MAX_STEPS * 1e-5


def test_the_schema_that_a_model_sees_says_what_the_check_demands():
    assert SPAN.json_schema()["pattern"] == "^[1-9][0-9]{0,8}[smhd]$"
    assert TIME.json_schema()["format"] == "date-time"
    assert LIST.json_schema()["maxItems"] == 2
    assert "minimum" not in SPAN.json_schema()  # seconds are no property of a text
