"""Frames between an owner and a stub: what one side writes the other reads, and nothing else passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.control.sandbox import stub, wire
from hermesd.control.sandbox.base import Job, PathRefused, PathUse, Resolved, SandboxError

NONCE = b"n" * wire.NONCE_BYTES

without_nul = st.binary(max_size=40).filter(lambda data: b"\0" not in data)
beneath = without_nul.filter(lambda data: not data.startswith(b"/"))


def received(request):
    """Read a request as the stub does."""
    block, fields, at = request[4:], [], 0
    assert int.from_bytes(request[:4], "big") == len(block)
    while at < len(block):
        end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        fields.append(block[at + 4 : end])
        at = end
    return stub.Job(fields)


@given(
    argv=st.lists(without_nul, max_size=6),
    paths=st.lists(beneath, max_size=4),
    stdin=st.binary(max_size=100),
    seccomp=st.binary(max_size=64),
)
def test_the_stub_reads_what_the_owner_writes(argv, paths, stdin, seccomp):
    job = Job(
        (b"/usr/bin/true", *argv, *range(len(paths))),
        tuple(PathUse("/var", path) for path in paths),
        stdin=stdin,
        timeout_ms=1234,
        output_bytes=77,
    )
    read = received(wire.encode_request(job, NONCE, {"core": 0, "files": 256}, seccomp))

    links = [b"/proc/self/fd/%d" % (index + 3) for index in range(len(paths))]
    assert read.argv == [b"/usr/bin/true", *argv, *links]
    assert read.paths == [(b"/var", path) for path in paths]
    assert (read.timeout_ms, read.output_bytes, read.stdin_bytes) == (1234, 77, len(stdin))
    assert read.limits == [(4, 0), (7, 256)]
    assert (read.nonce, read.filter, read.tool) == (NONCE, seccomp, b"")


def test_a_tool_gets_the_number_of_its_descriptor_alone():
    job = Job((0, b"5"), (PathUse("/var"),), tool="fs_largest")
    read = received(wire.encode_request(job, NONCE, {}))

    assert (read.tool, read.argv) == (b"fs_largest", [b"3", b"5"])


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job(()), "absolute path"),
        (Job((b"df",)), "absolute path"),
        (Job((0,), (PathUse("/var"),)), "absolute path"),
        (Job((b"/usr/bin/df", 0)), "does not have"),
        (Job((b"/usr/bin/df", -1), (PathUse("/var"),)), "does not have"),
        (Job((b"/usr/bin/df", b"a\0b")), "NUL"),
        (Job((b"/usr/bin/df", 0), (PathUse("/var", b"/etc"),)), "relative"),
        (Job((b"/usr/bin/df", 0), (PathUse("/var", b"a\0b"),)), "relative"),
    ],
)
def test_a_job_that_no_stub_could_run_is_refused_before_it_is_sent(job, reason):
    with pytest.raises(SandboxError, match=reason):
        wire.check_job(job)


@given(st.binary(min_size=5, max_size=5))
def test_any_header_is_read_or_refused(header):
    try:
        tag, length = wire.read_header(header)
    except SandboxError:
        return
    assert tag in b"HPROEX"
    assert length <= wire.MAX_FRAME_BYTES


def test_a_frame_that_is_longer_than_the_stub_sends_is_refused():
    with pytest.raises(SandboxError, match="protocol"):
        wire.read_header(b"O" + (wire.MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_paths_are_read_in_their_order_and_must_be_as_many_as_were_asked_for():
    assert wire.read_paths(b"P", b"1 2 3\n4 5 6", 2) == (Resolved(1, 2, 3), Resolved(4, 5, 6))
    assert wire.read_paths(b"P", b"", 0) == ()
    for payload in (b"1 2 3", b""):
        with pytest.raises(SandboxError):
            wire.read_paths(b"P", payload, 2)


def test_a_refused_path_names_its_place_and_its_reason():
    with pytest.raises(PathRefused) as refused:
        wire.read_paths(b"R", b"1 is a link", 2)
    assert (refused.value.index, refused.value.reason) == (1, "is a link")


def test_the_last_word_counts_only_with_the_jobs_nonce():
    assert wire.read_end(NONCE + b"exited 3 12.5", NONCE) == wire.End("exited", 3, 12.5)
    with pytest.raises(SandboxError, match="nonce"):
        wire.read_end(b"m" * wire.NONCE_BYTES + b"exited 0 1.0", NONCE)
