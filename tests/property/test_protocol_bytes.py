"""No bytes of a stranger raise anything but ProtocolError."""

import json

from hypothesis import given
from hypothesis import strategies as st

from hermesd.protocol import (
    CommandRequest,
    CommandResult,
    Decision,
    Envelope,
    ProtocolError,
    check_json,
    decode_envelope,
    encode,
    read_payload,
)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)
strange = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,20}", fullmatch=True)
GOOD = encode(Envelope(task_id="t", sender="a", receiver="b", kind="k", payload={"a": [1, "x"]}))


def decoded(text: bytes) -> Envelope | None:
    try:
        return decode_envelope(text)
    except ProtocolError:
        return None


@given(st.binary())
def test_arbitrary_bytes_are_an_envelope_or_a_protocol_error(text):
    decoded(text)


@given(st.text(st.sampled_from('{}[]",:0123456789eE.+-\\untrfalsNIy \n'), max_size=60))
def test_almost_json_is_an_envelope_or_a_protocol_error(text):
    decoded(text.encode())


@given(st.data())
def test_a_good_line_with_one_changed_byte_is_an_envelope_or_a_protocol_error(data):
    text = bytearray(GOOD)
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    decoded(bytes(text))


@given(st.dictionaries(st.sampled_from([*json.loads(GOOD), "other"]), strange))
def test_wrong_fields_are_a_protocol_error_and_nothing_else(fields):
    decoded(json.dumps({**json.loads(GOOD), **fields}).encode())


@given(st.sampled_from([CommandRequest, CommandResult, Decision, Envelope]), strange)
def test_any_payload_is_the_word_or_a_protocol_error(kind, payload):
    try:
        read_payload(kind, payload if isinstance(payload, dict) else {"task_id": payload})
    except ProtocolError:
        return


@given(names, names, plain)
def test_what_is_sent_is_what_is_read(task_id, kind, value):
    sent = Envelope(task_id=task_id, sender="a", receiver="b", kind=kind, payload={"value": value})
    assert decode_envelope(encode(sent)) == sent


@given(strange)
def test_checked_json_is_refused_or_can_be_written_again_without_loss(value):
    try:
        checked = check_json(json.dumps(value).encode())
    except ProtocolError:
        return
    assert json.loads(json.dumps(checked, ensure_ascii=False, allow_nan=False).encode()) == checked


@given(plain)
def test_checked_json_is_what_the_standard_library_reads(value):
    assert check_json(json.dumps(value).encode()) == value
