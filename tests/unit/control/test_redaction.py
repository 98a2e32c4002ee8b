"""Secrets leave no output, whatever spelling a program prints them in; what is none stays readable."""

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.catalogue import Output
from hermesd.control.output import read_output
from hermesd.control.redaction import REDACTED, Redactor
from hermesd.control.sandbox.base import Ended

PATTERNS = Redactor()
KEY = "sk.t3st/ab+cd=="
OWN = Redactor([KEY, "short"])
BEGIN = "-----BEGIN"  # apart, so that no file of the tree looks like a key
BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 3)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=hunter2", "hunter2"),
        ("DB_PASSWORD: 'two words'", "two words"),
        ('{"password": "hunter2", "port": 1}', "hunter2"),
        (json.dumps({"line": json.dumps({"client_secret": "hunter2"})}), "hunter2"),
        ("api_key = abcdef0123456789", "abcdef0123456789"),
        ("x-api-key: abcdef0123", "abcdef0123"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
        ("id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("Authorization: Bearer abcdefgh.12345", "abcdefgh.12345"),
        ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("Set-Cookie: sid=abc; Path=/", "sid=abc"),
        ("postgres://app:hunter2@db/app", "hunter2"),
        ("GET /hook?token=abcdef0123 HTTP/1.1", "abcdef0123"),
        ("mysql --password hunter2 -u app", "hunter2"),
        ("requirepass hunter2", "hunter2"),
        ("root:$6$rounds$abcdefghij:19000:0", "abcdefghij"),
        ("key ghp_" + "abcdefghijklmnopqrstuvwxyz0123", "ghp_abcdef"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "eyJzdWIiOiIx"),
        (f"{BEGIN} RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----", "MIIEvQ"),
        (f"{BEGIN} OPENSSH PRIVATE KEY-----\n{BODY}", "MIIEvQ"),
        (BODY, "MIIEvQ"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text, secret):
    found = PATTERNS.text(text)
    assert secret not in found
    assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "passwd:         files systemd",
        "Failed password for root from 192.0.2.7 port 22",
        "max_tokens=512",
        "monkey=banana",
        "ssl_certificate_key /etc/ssl/site.pem;",
        "Nov 30 03:00:00 host kernel: Out of memory: Killed process 17",
        "sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "https://example.org/a:b@c",
        "12:34:56 10.0.0.1:8080 GET /",
    ],
)
def test_what_is_no_secret_stays_as_it_stands(text):
    assert PATTERNS.text(text) == text


def spellings():
    data = KEY.encode()
    yield KEY
    yield quote(KEY, safe="")
    yield quote(KEY, safe="").lower().replace("sk.t3st", "sk.t3st")
    yield data.hex()
    yield data.hex().upper()
    yield json.dumps(KEY)
    for before in (b"", b"x", b"xy", b"xyz", b"key: "):
        yield base64.b64encode(before + data + b" and more").decode()
        yield base64.urlsafe_b64encode(before + data).decode()


@pytest.mark.parametrize("spelling", list(spellings()))
def test_our_own_secret_is_found_in_every_spelling_that_programs_print(spelling):
    found = OWN.text(f"curl: (22) {spelling} was refused")
    assert REDACTED in found
    assert KEY not in found
    assert KEY.encode().hex() not in found.lower()


@pytest.mark.parametrize("at", range(1, len(KEY)))
def test_a_line_break_within_our_own_secret_hides_nothing(at):
    found = OWN.text(f"x {KEY[:at]}\n  {KEY[at:]} y")
    assert found == f"x {REDACTED} y"


def test_a_secret_too_short_to_be_one_is_not_looked_for():
    assert OWN.text("a short note") == "a short note"


def test_an_escape_sequence_within_a_secret_hides_nothing():
    printed = f"{KEY[:4]}\x1b[0m{KEY[4:]}".encode()
    read = read_output(Output(), Ended(0, printed, b"", 1.0), {}, OWN)
    assert read.text == REDACTED


def test_rows_stay_rows_and_lose_what_their_names_say_is_secret():
    row = {
        "name": "x",
        "password": "hunter2",
        "port": 5,
        "inner": {"tokens": ["abc", 1]},
        "line": "token=abcdefgh",
    }
    assert PATTERNS.row(row) == {
        "name": "x",
        "password": REDACTED,
        "port": 5,
        "inner": {"tokens": [REDACTED, 1]},
        "line": f"token={REDACTED}",
    }


def test_text_rows_summary_and_what_is_kept_are_all_without_it():
    output = Output(parser="json_lines", summary="it says {line}")
    printed = b'{"line": "curl -H x ' + KEY.encode() + b'"}\n'
    read = read_output(output, Ended(0, printed, b"", 1.0), {}, OWN)
    assert KEY not in f"{read.text}{read.rows}{read.summary}{read.whole}"
    assert read.rows == ({"line": f"curl -H x {REDACTED}"},)


def test_a_secret_at_the_place_where_the_text_is_cut_is_gone_on_both_sides():
    lines = [f"{'x' * n}{KEY}" for n in range(20)]
    read = read_output(Output(max_lines=10), Ended(0, "\n".join(lines).encode(), b"", 1.0), {}, OWN)
    assert read.truncated
    assert KEY not in f"{read.text}{read.whole}"


@given(st.text(max_size=300))
def test_taking_secrets_out_never_fails_and_once_is_enough(text):
    once = OWN.text(text)
    assert OWN.text(once) == once
    assert KEY not in once


@pytest.mark.parametrize(
    "part", ["a", "token ", "password=", "://a:", "Aa1+", '"', f"{BEGIN} PRIVATE KEY-----", "sk.t3st/"]
)
def test_no_output_takes_long(part):
    began = time.perf_counter()
    OWN.text(part * (500_000 // len(part)))
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("kept", range(4, len(KEY)))
def test_where_an_output_was_ended_within_our_own_secret_its_beginning_is_gone_too(kept):
    for spelling in (KEY, KEY.encode().hex()):
        printed = f"x {spelling[:kept]}".encode()
        read = read_output(Output(), Ended(None, printed, b"", 1.0, truncated=True), {}, OWN)
        assert read.whole == f"x {REDACTED}".encode()


def test_an_output_that_ended_by_itself_keeps_its_end():
    read = read_output(Output(), Ended(0, f"x {KEY[:8]}".encode(), b"", 1.0), {}, OWN)
    assert read.whole == f"x {KEY[:8]}".encode()
