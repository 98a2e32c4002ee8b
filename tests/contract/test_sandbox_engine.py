"""What only a container engine can do to us: hang, be asked to pull, have its image swapped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from hermesd.control.sandbox.base import Job, Profile, SandboxError
from hermesd.control.sandbox.docker import Docker

pytestmark = pytest.mark.slow


@pytest.fixture
async def docker(engine):
    made = Docker([engine], run_as=(64801, 64801))
    yield made
    await made.close()


@pytest.fixture
def client(engine):
    from docker import APIClient

    made = APIClient(base_url=f"unix://{engine}", version="auto")
    yield made
    made.close()


async def test_a_stopped_engine_is_given_up_in_time(engine, docker):
    pid = int((Path(engine).parent / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        test = await docker.self_test()
        spent = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)

    assert not test.usable
    assert "did not answer" in test.reason
    assert spent < 5


async def test_an_engine_holds_our_image_and_nothing_that_was_pulled(docker, client):
    container = await docker.start(Profile())
    await container.destroy()

    tags = [tag for image in client.images() for tag in image["RepoTags"] or []]
    assert tags
    assert all(tag.startswith("hermesd-empty:") for tag in tags)


async def test_an_image_whose_tag_was_swapped_is_not_used(docker, client):
    container = await docker.start(Profile())
    await container.destroy()
    real = docker._image
    (ours,) = client.inspect_image(real)["RepoTags"]
    client.import_image_from_data(b"\0" * 10240, repository="other", tag="evil")
    repository, _, version = ours.partition(":")
    client.tag("other:evil", repository, version, force=True)
    try:
        container = await docker.start(Profile())
        try:
            await container.resolve(Job((b"/usr/bin/true",)))
            assert (await container.run()).exit_status == 0
        finally:
            await container.destroy()
    finally:
        client.tag(real, repository, version, force=True)
        client.remove_image("other:evil")


async def test_an_image_that_was_cleaned_up_is_made_again(docker, client):
    await (await docker.start(Profile())).destroy()
    for image in client.images():
        client.remove_image(image["Id"], force=True)
    container = await docker.start(Profile())
    await container.destroy()

    assert len(client.images()) == 1


async def test_a_container_that_its_engine_killed_is_an_error(docker, client):
    container = await docker.start(Profile())
    try:
        await container.resolve(Job((b"/usr/bin/sleep", b"60")))
        client.kill(container.id)
        with pytest.raises(SandboxError, match="ended before"):
            await container.run()
    finally:
        await container.destroy()


async def test_no_container_of_ours_is_left_in_the_engine(docker, client):
    for _ in range(2):
        container = await docker.start(Profile())
        await container.resolve(Job((b"/usr/bin/true",)))
        await container.run()
        await container.destroy()

    until = time.monotonic() + 3
    while (left := client.containers(all=True)) and time.monotonic() < until:
        time.sleep(0.05)  # noqa: ASYNC251 - nothing else runs on this loop
    assert left == []
