"""The validation against an oracle of its own: whatever is asked, nothing outside policy is bound."""

import importlib.util
import random
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def _fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", Path(__file__).with_name("fuzz.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = _fuzz()
FILES = fuzz.shipped_files()


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return fuzz.policy_of(tmp_path_factory.mktemp("policy"))


def test_of_ten_thousand_requests_none_is_bound_outside_policy():
    counts, found = fuzz.run(10_000, random.randrange(2**32))
    assert found == []
    assert counts["refused"] > 1000
    assert counts["bound"] > 1000


words = st.sampled_from([value for value in fuzz.VALUES if isinstance(value, str)] + fuzz.BITS)
texts = st.lists(words, min_size=1, max_size=4).map("".join) | st.text(st.characters(), max_size=40)
anything = texts | st.sampled_from(fuzz.VALUES) | st.integers() | st.booleans()


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_whatever_hypothesis_finds_to_ask_is_refused_or_within_policy(policy, command, data):
    args = {name: data.draw(anything) for name in FILES[command].get("args", {})}
    assert fuzz.judged(policy, FILES, command, args)[1] == []


@pytest.mark.parametrize(
    ("command", "values", "fault"),
    [
        ("fs:largest", {"path": "/etc/shadow"}, "permitted root"),
        ("fs:largest", {"path": "/var/../etc"}, "the file's root"),
        ("fs:cleanup", {"path": "/var/log"}, "permitted root"),
        ("fs:largest", {"path": "/tmp", "limit": 201}, "range"),
        ("fs:largest", {"path": "/tmp", "limit": True}, "type"),
        ("unit:status", {"unit": "-H"}, "option"),
        ("unit:status", {"unit": "a\n"}, "control"),
    ],
)
def test_the_oracle_sees_what_a_broken_validation_would_let_through(command, values, fault):
    mounts = [SimpleNamespace(mode="ro", root=str(PurePosixPath("/var")))]
    bound = SimpleNamespace(values=values, profile=SimpleNamespace(mounts=mounts))
    assert fault in fuzz.outside(FILES, command, values, bound)
