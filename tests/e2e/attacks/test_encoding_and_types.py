"""Characters, numbers and bytes that two readers would understand differently: refused, and nothing runs."""

import pytest

pytestmark = pytest.mark.slow

LETTERS = {
    ("unit:status", "unit"): (
        *("nginx.service\n", "ngin\u0445.service", "n\u200bginx.service", "nginx\u202e.service"),
        *("nginx.service\ufe0f", "\u212aernel.service", "nginx\0.service"),
    ),
    ("fs:largest", "path"): ("/tmp/\uff0e\uff0e\uff0fetc", "/tmp/\0/etc"),
}
NUMBERS = {
    ("fs:largest", "limit"): ("\u0967\u0968", "1_000", " 12\n", "12", True, -1, 0, 1.5, None, [], {}, 2**80)
}
BESIDE = {"limit": {"path": "/tmp"}}

MALFORMED = {
    "two objects": lambda good: good.strip() + good,
    "prose before": lambda good: b"Sure! Here it is: " + good,
    "prose behind": lambda good: good.strip() + b" hope it helps\n",
    "duplicate keys": lambda good: good.replace(b'"kind"', b'"kind": "command.request", "kind"', 1),
    "10,000 brackets": lambda _good: b"[" * 10_000 + b"]" * 10_000 + b"\n",
    "NaN": lambda good: good.replace(b'"path"', b'"limit": NaN, "path"', 1),
    "1e400": lambda good: good.replace(b'"path"', b'"limit": 1e400, "path"', 1),
    "-0": lambda good: good.replace(b'"path"', b'"limit": -0, "path"', 1),
    "-0.0": lambda good: good.replace(b'"path"', b'"limit": -0.0, "path"', 1),
    "lone surrogate": lambda good: good.replace(b'"path"', b'"x": "\\ud800", "path"', 1),
    "no UTF-8": lambda good: good.replace(b'"path"', b'"x": "\xff\xfe", "path"', 1),
    "50 MB": lambda _good: b'{"x":"' + b"a" * 50_000_000 + b'"}\n',
}


async def test_no_deceiving_character_gets_through(pair, hostile):
    await pair.start("executor")
    await hostile.is_refused(LETTERS, BESIDE)


async def test_only_an_integer_in_its_range_is_one(pair, hostile):
    await pair.start("executor")
    await hostile.is_refused(NUMBERS, BESIDE)


async def test_no_malformed_message_is_taken_for_a_request(pair, hostile):
    await pair.start("executor")
    for name, spoil in MALFORMED.items():
        good = hostile.line("fs:largest", {"path": "/tmp"})
        data = spoil(good)
        assert data != good, name
        assert hostile.said(data) in {("", ""), ("failed", ""), ("succeeded", "refused")}, name
    assert hostile.said(hostile.line("fs:largest", {"path": "/tmp"})) == ("succeeded", "succeeded")
