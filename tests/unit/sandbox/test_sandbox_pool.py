"""The pool of waiting containers and the choice between sandboxes, over hand-made ones."""

import asyncio

import pytest

from hermesd.control.sandbox.auto import choose, first_usable
from hermesd.control.sandbox.base import Ended, Job, Mount, PathRefused, Profile, SandboxError, SelfTest
from hermesd.control.sandbox.bubblewrap import Bubblewrap
from hermesd.control.sandbox.pool import Pool

JOB = Job((b"/usr/bin/true",))


class OneContainer:
    def __init__(self, sandbox, number):
        self.sandbox, self.number = sandbox, number
        self.jobs = 0
        self.dead = self.refuses = self.destroyed = False

    async def resolve(self, job):
        if self.dead:
            raise SandboxError("the container is gone")
        if self.refuses:
            raise PathRefused(0, "is a link")
        self.jobs += 1
        return ()

    async def run(self):
        return Ended(0, b"%d" % self.number, b"", 1.0)

    async def destroy(self):
        self.destroyed = True


class CountingSandbox:
    name = "counting"

    def __init__(self, *, usable=True, reason=""):
        self.started = []
        self.closed = False
        self.broken = False
        self.at_once = self.most_at_once = 0
        self.result = SelfTest(usable=usable, reason=reason)

    async def self_test(self):
        return self.result

    async def start(self, profile):
        if self.broken:
            raise SandboxError("no more processes")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        self.started.append((profile, OneContainer(self, len(self.started))))
        return self.started[-1][1]

    async def reap(self):
        return 3

    async def ended(self):
        await asyncio.Event().wait()

    async def close(self):
        self.closed = True

    def waiting(self):
        return [container for _, container in self.started if not container.destroyed and not container.jobs]


async def use(pool, profile):
    container = await pool.start(profile)
    try:
        await container.resolve(JOB)
        return (await container.run()).stdout
    finally:
        await container.destroy()


async def until(holds):
    async with asyncio.timeout(2):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
async def inner():
    return CountingSandbox()


@pytest.fixture
async def pool(inner):
    made = Pool(inner, size=2, idle_seconds=60)
    yield made
    await made.close()


async def test_a_profile_that_was_used_has_a_container_waiting_and_none_serves_twice(pool, inner):
    served = set()
    for _ in range(4):
        served.add(await use(pool, Profile()))
        await until(inner.waiting)
        assert len(inner.waiting()) == 1

    assert served == {b"0", b"1", b"2", b"3"}
    assert all(container.jobs <= 1 for _, container in inner.started)


async def test_nothing_is_refilled_while_a_request_runs(pool, inner):
    await use(pool, Profile())
    busy = await pool.start(Profile(pids=9))
    await asyncio.sleep(0.1)
    assert len(inner.started) == 2
    await busy.destroy()
    await until(lambda: len(inner.waiting()) == 2)
    assert inner.most_at_once == 1


async def test_only_the_profiles_used_last_have_one_waiting(pool, inner):
    for pids in (1, 2, 3):
        await use(pool, Profile(pids=pids))
    await until(lambda: len(inner.waiting()) == 2)

    assert {profile.pids for profile, container in inner.started if container in inner.waiting()} == {2, 3}


async def test_a_container_that_died_while_it_waited_is_replaced_by_a_new_one(pool, inner):
    await use(pool, Profile())
    await until(inner.waiting)
    (dead,) = inner.waiting()
    dead.dead = True

    assert await use(pool, Profile()) not in (b"0", b"%d" % dead.number)
    assert dead.destroyed


async def test_a_refused_path_is_the_answer_and_no_reason_for_another_container(pool, inner):
    await use(pool, Profile())
    await until(inner.waiting)
    inner.waiting()[0].refuses = True
    container = await pool.start(Profile())
    with pytest.raises(PathRefused):
        await container.resolve(JOB)
    await container.destroy()

    assert len(inner.started) == 2


async def test_a_container_whose_root_is_another_folder_by_now_is_not_used(pool, inner, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    profile = Profile(mounts=(Mount(str(root)),))
    await use(pool, profile)
    await until(inner.waiting)
    (old,) = inner.waiting()
    root.rename(tmp_path / "moved")
    root.mkdir()

    assert await use(pool, profile) != b"%d" % old.number
    assert old.destroyed
    assert not old.jobs


async def test_what_waits_too_long_is_ended(inner):
    pool = Pool(inner, idle_seconds=0.05)
    await use(pool, Profile())
    await until(inner.waiting)
    await asyncio.sleep(0.06)
    await use(pool, Profile(pids=9))
    await until(
        lambda: [profile.pids for profile, container in inner.started if container in inner.waiting()] == [9]
    )
    await pool.close()


async def test_a_sandbox_that_cannot_start_beforehand_still_serves(pool, inner):
    await use(pool, Profile())
    inner.broken = True
    await asyncio.sleep(0.1)
    inner.broken = False
    for _, container in inner.started:
        container.dead = True

    assert await use(pool, Profile())


async def test_closing_ends_what_waits_and_the_sandbox(inner):
    pool = Pool(inner)
    await use(pool, Profile())
    await until(inner.waiting)
    await pool.close()

    assert inner.waiting() == []
    assert inner.closed
    assert (await pool.reap(), pool.name) == (3, "counting")


async def test_the_first_sandbox_that_keeps_its_promises_is_chosen_and_every_reason_kept():
    broken, good, unasked = (
        CountingSandbox(usable=False, reason="no engine"),
        CountingSandbox(),
        CountingSandbox(),
    )
    broken.name = "first"
    choice = await first_usable([lambda: broken, lambda: good, lambda: unasked])

    assert choice.sandbox is good
    assert choice.reasons == {"first": "no engine", "counting": "usable"}
    assert broken.closed
    assert not good.closed


async def test_without_a_usable_sandbox_the_reason_names_every_candidate():
    choice = await choose("auto", docker_sockets=("/nonexistent/docker.sock",), run_as=(0, 0))

    assert choice.sandbox is None
    assert not choice.self_test.usable
    assert "there is no container engine at /nonexistent/docker.sock" in choice.reasons["docker"]
    assert choice.reasons["bubblewrap"] in choice.self_test.reason


async def test_only_what_is_wanted_is_looked_at():
    choice = await choose("docker", docker_sockets=("/nonexistent/docker.sock",))

    assert set(choice.reasons) == {"docker"}


async def test_bubblewrap_is_never_started_as_root():
    for identity in ((0, 0), (0, 1000), (1000, 0)):
        with pytest.raises(SandboxError, match="never started by root"):
            await Bubblewrap(run_as=identity).start(Profile())


async def test_a_missing_bwrap_is_said_with_its_package():
    test = await Bubblewrap("/nonexistent/bwrap", run_as=(1000, 1000)).self_test()

    assert (test.usable, test.reason) == (False, "bwrap is not installed: apt-get install bubblewrap")
