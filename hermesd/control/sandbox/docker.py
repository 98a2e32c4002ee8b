"""Containers by an engine that speaks Docker's API: Docker itself, or Podman's compatible socket.

Each container is built of the empty image and the host's `/usr`, both read-only, and bounded by the
engine's own cgroups. The engine runs as root and mounts by name, so what a name led to is found out
inside, by the stub, and compared by whoever asked. This module is the one home of the `docker`
package; it must never pull an image, and never give a container root's uid.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from hermesd.control.sandbox import folders, supply
from hermesd.control.sandbox.base import Container, Ended, Job, Profile, Resolved, SandboxError, SelfTest
from hermesd.control.sandbox.dialogue import Dialogue
from hermesd.control.sandbox.engine import CALL_SECONDS, LABEL, Engine, EngineError
from hermesd.control.sandbox.image import image_tag, image_tar
from hermesd.control.sandbox.multiplexed import Multiplexed
from hermesd.control.sandbox.process import ended
from hermesd.control.sandbox.seccomp import build_filter

START_SECONDS: Final = 20.0
END_SECONDS: Final = 2.0

_NOBODY: Final = (65534, 65534)
_MEGABYTE: Final = 1 << 20
_STUB_MB: Final = 24
"""The stub's interpreter, which shares the container's cgroup with the command."""


class Docker:
    """The sandbox. ``sockets`` are tried in their order; ``run_as`` is whose the commands are."""

    name = "docker"

    def __init__(
        self, sockets: Sequence[str], *, run_as: tuple[int, int] | None = None, instance: str = ""
    ) -> None:
        self._sockets = tuple(sockets)
        self._identity = run_as or (os.geteuid(), os.getegid())
        if 0 in self._identity:
            self._identity = _NOBODY
        self._instance = supply.instance_label(instance)
        self._engine: Engine | None = None
        self._image = ""
        self._connecting = asyncio.Lock()
        self._live: dict[str, _Container] = {}

    async def self_test(self) -> SelfTest:
        """Prove each promise from inside a real container. Bounded; never raises."""
        from hermesd.control.sandbox.selftest import prove  # noqa: PLC0415 - the test starts containers through us

        try:
            await self._ready_engine()
        except SandboxError as error:
            return SelfTest(usable=False, reason=str(error))
        return await prove(self)

    async def start(self, profile: Profile) -> Container:
        """Start a container whose stub is ready. Raise SandboxError."""
        _check_roots(profile)
        engine = await self._ready_engine()
        settings = create_settings(profile, self._image, self._identity, self._instance)
        try:
            made = await engine.create(settings)
        except EngineError as error:
            if not error.missing:
                raise
            settings["Image"] = self._image = await _our_image(engine, self._identity)  # somebody cleaned up
            made = await engine.create(settings)
        container = _Container(engine, made, profile, self._forget)
        self._live[container.id] = container
        await container.ready()
        return container

    async def reap(self) -> int:
        """Remove what a former life of this instance left behind; return how many."""
        engine = await self._ready_engine()
        old = [found for found in await engine.labelled(self._instance) if found not in self._live]
        await asyncio.gather(*(engine.remove(found) for found in old))
        return len(old)

    async def ended(self) -> None:
        """Return when the engine that answered is gone: the next one has to be proved anew."""
        try:
            engine = await self._ready_engine()
        except SandboxError:
            return
        await engine.until_gone()

    async def close(self) -> None:
        """End what still runs and let go of the engine."""
        await asyncio.gather(*(container.destroy() for container in tuple(self._live.values())))
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _forget(self, container: _Container) -> None:
        self._live.pop(container.id, None)

    async def _ready_engine(self) -> Engine:
        """Return the first engine that answers, with our image in it."""
        async with self._connecting:
            if self._engine is None:
                engine = await self._first_engine()
                self._image = await _our_image(engine, self._identity)
                self._engine = engine
            return self._engine

    async def _first_engine(self) -> Engine:
        reasons = []
        for path in self._sockets:
            try:
                return await Engine.connect(path, _client)
            except EngineError as error:
                reasons.append(_with_remedy(str(error)))
        raise SandboxError("; ".join(reasons) or "no container engine is named")


class _Container:
    """One container of an engine and the talk with the stub in it."""

    def __init__(
        self, engine: Engine, container_id: str, profile: Profile, forget: Callable[[_Container], None]
    ) -> None:
        self.id = container_id
        self.inner_pid = 0
        self._engine = engine
        self._profile = profile
        self._forget = forget
        self._link: Multiplexed | None = None
        self._dialogue: Dialogue | None = None
        self._pidfd = -1
        self._ending: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Attach, start, and wait for the stub's first word; remove it all when that does not come."""
        try:
            self._link = await Multiplexed.over(await self._engine.attach(self.id))
            self.inner_pid = await self._engine.start(self.id)
            seccomp = build_filter(sockets=bool(self._profile.files))
            self._dialogue = Dialogue(self._link, limits_of(self._profile), seccomp)
            await self._dialogue.hello(START_SECONDS)
            self._pidfd = os.pidfd_open(self.inner_pid)
        except (SandboxError, OSError) as error:
            complaint = self._link.complaint() if self._link else ""
            await self.destroy()
            raise SandboxError(f"{error} {complaint}".strip()) from None
        except asyncio.CancelledError:
            await self.destroy()
            raise

    async def resolve(self, job: Job) -> tuple[Resolved, ...]:
        """Hand the job in; return what its paths are. Raise PathRefused or SandboxError."""
        return await self._talk().resolve(job)

    async def run(self) -> Ended:
        """Give the word to go and wait for the end."""
        try:
            return await self._talk().run()
        finally:
            self._begin_end()

    async def destroy(self) -> None:
        """End everything in it, once; whoever calls again waits for the same end."""
        await asyncio.shield(self._begin_end())

    def _talk(self) -> Dialogue:
        if self._dialogue is None:
            raise SandboxError("the container is not ready")
        return self._dialogue

    def _begin_end(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name=f"end-container-{self.id[:12]}")
        return self._ending

    async def _end(self) -> None:
        if self._link is not None:
            self._link.close()
        try:
            await self._engine.remove(self.id)
        except SandboxError:
            pass  # a hung engine: the stub ends by its input and its own clock, `reap` removes the rest
        finally:
            if self._pidfd >= 0:
                await ended(self._pidfd, END_SECONDS)
                os.close(self._pidfd)
            self._forget(self)


def create_settings(profile: Profile, image: str, identity: tuple[int, int], instance: str) -> dict[str, Any]:
    """Return what the API is told for a container of ``profile``: pure, and all of it.

    With the host's processes in sight the uid is nobody's: one of the executor's own uid could be
    looked into otherwise.
    """
    uid, gid = _NOBODY if profile.host_pid else identity
    memory = (profile.memory_mb + profile.tmp_mb + _STUB_MB) * _MEGABYTE
    host = {
        "AutoRemove": True,
        "ReadonlyRootfs": True,
        "NetworkMode": "none",
        "IpcMode": "none",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "GroupAdd": [str(group) for group in profile.groups],
        "PidsLimit": profile.pids + 1,
        "Memory": memory,
        "MemorySwap": memory,
        "OomScoreAdj": 1000,
        "Tmpfs": _tmpfs(profile),
        "LogConfig": {"Type": "none", "Config": {}},
        "Mounts": _mounts(profile),
        "Init": False,
    }
    return {
        "Image": image,
        "Entrypoint": supply.program("stub"),
        "Cmd": [],
        "User": f"{uid}:{gid}",
        "WorkingDir": "/",
        "Hostname": "container",
        "NetworkDisabled": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Labels": {LABEL: instance},
        "HostConfig": host,
    }


def limits_of(profile: Profile) -> dict[str, int]:
    """Return the rlimits of a command. Processes are the cgroup's: here the uid may be shared."""
    limits = supply.limits_of(profile)
    del limits["pids"]
    return limits


def _mounts(profile: Profile) -> list[dict[str, Any]]:
    """Return the binds. The engine itself writes to `/proc` before the command starts: it makes it safe."""
    modes = {"/usr": "ro", **{mount.root: mount.mode for mount in profile.mounts}}
    modes |= dict.fromkeys(profile.files, "ro")
    modes |= {"/proc": "rw"} if profile.host_pid else {}
    return [
        {
            "Type": "bind",
            "Source": source,
            "Target": source,
            "ReadOnly": mode != "rw",
            "BindOptions": {"NonRecursive": True, "Propagation": "rprivate"},
        }
        for source, mode in modes.items()
    ]


def _tmpfs(profile: Profile) -> dict[str, str]:
    """Return the folders in memory: `/tmp`, unless it is a root, and the empty ones over what is masked."""
    tmp = f"rw,noexec,nosuid,nodev,size={profile.tmp_mb}m,mode=1777,nr_inodes=4096"
    own = {} if any(mount.root == "/tmp" for mount in profile.mounts) else {"/tmp": tmp}  # noqa: S108 - the container's
    return {**own, **dict.fromkeys(profile.masks, "ro,noexec,nosuid,nodev,size=4k,mode=0000")}


def _check_roots(profile: Profile) -> None:
    """Refuse a root that is a link or may not be mounted. The engine follows its name again: see above."""
    table = folders.read_mountinfo()
    for mount in profile.mounts:
        os.close(folders.open_root(mount, table))
    for name in profile.files:
        os.close(folders.open_file(name))


async def _our_image(engine: Engine, identity: tuple[int, int]) -> str:
    layer = image_tar(*identity)
    tag = image_tag(layer)
    try:
        return await engine.image(tag)
    except EngineError as error:
        if not error.missing:
            raise
    return await engine.import_image(layer, tag)


def _with_remedy(reason: str) -> str:
    if "Permission" in reason or "Errno 13" in reason:
        return f"{reason}: add the executor's user to the engine's group, or use bubblewrap"
    return reason


def _client(path: str) -> Any:
    from docker import APIClient  # noqa: PLC0415 - 150 ms, only where an engine is

    return APIClient(base_url=f"unix://{path}", version="auto", timeout=int(CALL_SECONDS))
