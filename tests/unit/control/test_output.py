import string

from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.catalogue import Output
from hermesd.control.output import clean, first_line, human_bytes, read_output
from hermesd.control.redaction import Redactor
from hermesd.control.sandbox.base import Ended


def read(output: Output, text: bytes, **values):
    return read_output(output, Ended(0, text, b"", 1.0), values, Redactor())


def test_a_table_becomes_rows_with_typed_columns_and_the_arguments_that_were_asked_for():
    output = Output(
        parser="table",
        skip_lines=1,
        columns=("source:text", "size:integer", "use:percent"),
        with_args=("path",),
        summary="{path}: {use} % of {size:bytes}",
    )
    found = read(output, b"Filesystem 1B-blocks Use%\n/dev/vda 24000000 81%\n", path="/var")
    assert found.rows == ({"source": "/dev/vda", "size": 24_000_000, "use": 81.0, "path": "/var"},)
    assert found.summary == "/var: 81 % of 24.0 MB"


def test_kernel_counters_in_kilobytes_become_bytes_and_can_be_named_in_a_summary():
    found = read(
        Output(parser="key_value", summary="{MemFree:bytes} free"), b"MemFree:        2048 kB\nHugePages: 0\n"
    )
    assert found.rows[0] == {"MemFree": 2_097_152, "HugePages": 0}
    assert found.summary == "2.1 MB free"


def test_a_relative_path_in_a_row_is_shown_beneath_the_folder_that_was_asked_about():
    output = Output(parser="json_lines", relative_to="path")
    found = read(output, b'{"path": "cache/a", "size_bytes": 7}\n', path="/var/x")
    assert found.rows[0]["path"] == "/var/x/cache/a"


def test_lines_that_are_not_what_the_parser_expects_are_left_out_and_never_raise():
    output = Output(parser="json_lines")
    found = read(output, b'{"a": 1}\nnot json\n{"a": 1, "a": 2}\n[1]\n{"b": NaN}\n')
    assert found.rows == ({"a": 1},)


def test_escape_sequences_and_deceiving_characters_do_not_survive():
    text = clean("\x1b[31mred\x1b[0m \x1b]0;title\x07a\u202eb\u200bc\rd\x9b31m".encode())
    assert text == "red a\\u202eb\\u200bc\\x0dd\\x9b31m"


def test_output_beyond_the_limit_is_cut_and_says_so():
    found = read(Output(max_lines=10), b"line\n" * 11)
    assert found.truncated
    assert found.text.count("line") == 10
    assert found.size_bytes == 55


def test_the_digest_is_that_of_the_whole_output():
    # sha256sum of "abc", from FIPS 180-4's example
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert read(Output(max_lines=1), b"abc").digest == expected


@given(st.binary(max_size=300))
def test_whatever_a_command_prints_something_safe_comes_out(data):
    for parser in ("text", "table", "key_value", "json_lines", "gain"):
        found = read(Output(parser=parser, columns=("a:integer", "b:percent"), summary="{a} {count}"), data)
        assert all(char.isprintable() or char == "\n" for char in found.text)
    assert first_line(data).isprintable()


@given(st.integers(min_value=0, max_value=10**18))
def test_a_size_is_always_a_short_figure_with_a_unit(size):
    figure, unit = human_bytes(size).split(" ")
    assert unit in ("bytes", "kB", "MB", "GB", "TB")
    assert set(figure) <= set(string.digits + ".")
