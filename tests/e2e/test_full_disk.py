"""The executor's state on a disk that fills up: what cannot be written down is not done."""

import asyncio
import os
import subprocess

import pytest

from hermesd.demo.stage import AskError

pytestmark = pytest.mark.slow


@pytest.fixture
def full(pair, needs):
    """Lay the executor's state on a small file system of its own; return what fills it to the last byte."""
    needs(os.geteuid() == 0, "root, to mount a small file system")
    state = pair.folder / "executor" / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", state], check=True)
    account = pair.players.executor
    os.chown(state, account.uid, account.gid)

    def fill():
        with (state / "rubbish").open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(b"x" * 512)
                except OSError:
                    return state / "rubbish"

    yield fill
    subprocess.run(["umount", "-l", state], check=True)


async def test_on_a_full_disk_nothing_more_is_executed_until_a_restart(pair, as_agent, full):
    await pair.start("executor")
    rubbish = pair.rubbish(files=2)
    assert (await as_agent(pair, "system:load", "r1"))["status"] == "succeeded"
    asking = asyncio.create_task(as_agent(pair, "fs:cleanup", "r2", path=str(pair.data)))
    operation = await pair.pending()
    shown = await pair.executor("approve.show", id=operation["id"])

    filling = full()
    for number in range(40):  # what was laid out before may still take a record or two
        result = await as_agent(pair, "system:load", f"f{number}")
        if result["status"] != "succeeded":
            break
    assert (result["status"], "could not be written down" in result["reason"]) == ("unavailable", True)
    status = await pair.executor("status")
    assert not status["usable"]
    assert "could not be written down" in status["reason"]

    filling.unlink()
    with pytest.raises(AskError, match="could not be written down"):
        await pair.executor(
            "approve.redeem", id=operation["id"], token=shown["token"], second=shown["second_word"]
        )
    assert (await as_agent(pair, "system:load", "r3"))["status"] == "unavailable"
    assert all(path.exists() for path in rubbish)
    asking.cancel()

    await pair.stop("executor")
    await pair.start("executor")
    assert (await as_agent(pair, "system:load", "r4"))["status"] == "succeeded"
    assert [one["id"] for one in (await pair.executor("approvals"))["operations"]] == [operation["id"]]
