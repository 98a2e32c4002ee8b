import asyncio
from pathlib import Path

import pytest

from hermesd.audit import AuditError, read_records
from hermesd.control.gate import NotPending
from hermesd.control.outcome import Stopped
from hermesd.control.sandbox.base import Ended, Resolved
from hermesd.control.settings import load_policy
from hermesd.protocol import ResultStatus, Stage, StageOutcome

SHIPPED = Path(__file__).parents[3] / "conf.d"

OPERATOR, STRANGER = 4711, 4712


def heard():
    progress = []
    return progress, progress.append


async def waiting(gate, request):
    """Send a request that a person must confirm; return its task and operation once it waits."""
    task = asyncio.create_task(gate.run(request, lambda _progress: None))
    async with asyncio.timeout(5):
        while not (found := await gate.pending()):
            await asyncio.sleep(0.005)
    return task, found[0]


async def test_a_reading_command_runs_by_itself_and_its_stages_are_timed(house):
    house.sandbox.answers["/usr/bin/df"] = Ended(
        0, b"Filesystem Type 1B-blocks Used Avail Use%\n/dev/vda ext4 1000 810 190 81%\n", b"", 2.0
    )
    async with house.open() as gate:
        result = await gate.run(house.request("system:disk_usage", path=str(house.data)), lambda _p: None)
    assert result.status is ResultStatus.SUCCEEDED
    assert result.rows[0]["used_percent"] == 81.0
    assert [timing.name for timing in result.stages] == [Stage.VALIDATE, Stage.PREPARE, Stage.EXECUTE]
    assert {timing.outcome for timing in result.stages} == {StageOutcome.OK}
    assert result.stages[2].budget_ms == 10_000


@pytest.mark.parametrize(
    ("command", "args", "field"),
    [
        ("shell:run", {}, "command"),
        ("system:disk_usage", {"path": "/etc"}, "path"),
        ("system:disk_usage", {"path": "/var/log/../../etc"}, "path"),
        ("system:disk_usage", {"path": 7}, "path"),
        ("system:disk_usage", {"paths": "/"}, "paths"),
        ("fs:largest", {"path": "/tmp", "limit": "10"}, "limit"),
        ("fs:largest", {"path": "/tmp", "limit": True}, "limit"),
        ("fs:largest", {"path": "/tmp", "limit": 1_000_000}, "limit"),
        ("fs:largest", {}, "path"),
        ("fs:cleanup", {"path": "/tmp"}, "path"),
        ("log:search", {"path": "/var/log/x", "text": "-f/etc/shadow"}, "text"),
        ("log:search", {"path": "/var/log/x", "text": "nginx\n"}, "text"),
    ],
)
async def test_what_the_catalogue_does_not_allow_is_refused_with_the_field_and_starts_nothing(
    house, command, args, field
):
    async with house.open() as gate:
        result = await gate.run(house.request(command, **args), lambda _p: None)
    assert result.status is ResultStatus.REFUSED
    assert [item.field for item in result.rejected] == [field]
    assert house.sandbox.started == []


async def test_a_request_id_is_run_once_and_answered_with_what_became_of_it(house):
    async with house.open() as gate:
        request = house.request("system:load")
        first = await gate.run(request, lambda _p: None)
        second = await gate.run(request, lambda _p: None)
    async with house.open() as gate:
        third = await gate.run(request, lambda _p: None)
    assert first == second == third
    assert len(house.sandbox.ran) == 1


async def test_a_request_id_used_for_another_request_is_refused(house):
    async with house.open() as gate:
        await gate.run(house.request("system:load"), lambda _p: None)
        result = await gate.run(house.request("system:memory"), lambda _p: None)
    assert result.status is ResultStatus.REFUSED
    assert "another request" in result.reason


async def test_two_askers_of_one_request_share_one_run(house):
    house.sandbox.hold = asyncio.Event()
    async with house.open() as gate:
        request = house.request("system:load")
        asks = [asyncio.create_task(gate.run(request, lambda _p: None)) for _ in range(2)]
        await asyncio.sleep(0.05)
        house.sandbox.hold.set()
        results = await asyncio.gather(*asks)
    assert results[0] == results[1]
    assert len(house.sandbox.ran) == 1


async def test_a_removal_waits_for_a_person_and_then_removes_exactly_what_was_shown(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        assert operation.impact.text == f"2 files under {house.data}, 1.5 kB, not reversible"
        assert [name for name, _job in house.sandbox.ran] == ["fs_targets"]
        _operation, preview, minted = await gate.show(operation.id, OPERATOR)
        result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
        assert await task == result
    assert result.status is ResultStatus.SUCCEEDED
    assert result.gain is not None
    assert result.gain.freed_bytes == 8192
    name, job = house.sandbox.ran[-1]
    assert name == "fs_remove"
    assert job.stdin == preview.manifest
    assert house.sandbox.started[-1].profile.mounts[0].mode == "rw"


async def test_every_container_is_destroyed_however_its_request_ends(house):
    house.sandbox.answers["/usr/bin/cat"] = Ended(1, b"", b"no such file\n", 1.0)
    async with house.open() as gate:
        failed = await gate.run(house.request("system:load"), lambda _p: None)
        house.sandbox.pretend = Resolved(1, 2, 3)
        refused = await gate.run(
            house.request("fs:largest", "t1.2.0.0", path=str(house.data)), lambda _p: None
        )
    assert (failed.status, failed.reason) == (ResultStatus.FAILED, "exit status 1: no such file")
    assert refused.status is ResultStatus.REFUSED
    assert len(house.sandbox.started) == 2
    assert all(container.destroyed for container in house.sandbox.started)


async def test_a_path_that_is_another_object_inside_the_container_is_refused_before_it_runs(house):
    house.sandbox.pretend = Resolved(1, 2, 3)
    async with house.open() as gate:
        result = await gate.run(house.request("fs:largest", path=str(house.data)), lambda _p: None)
    assert result.status is ResultStatus.REFUSED
    assert house.sandbox.ran == []


async def refused_redemption(gate, operation, uid, token, second):
    with pytest.raises(Stopped) as end:
        await gate.redeem(operation.id, uid, token, second)
    return end.value.reason


async def test_a_token_is_gone_after_one_attempt_right_or_wrong(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        assert "not the token" in await refused_redemption(
            gate, operation, OPERATOR, "AAAA-AAAA", minted.second_word
        )
        assert "no token" in await refused_redemption(
            gate, operation, OPERATOR, minted.token, minted.second_word
        )
        assert not task.done()
        task.cancel()


@pytest.mark.parametrize("answer", ["", "y", "yes", "Y\n"])
async def test_an_answer_that_is_not_the_token_approves_nothing(house, answer):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        await refused_redemption(gate, operation, OPERATOR, answer, minted.second_word)
        assert [name for name, _job in house.sandbox.ran] == ["fs_targets", "fs_targets"]
        task.cancel()


async def test_a_destroying_operation_needs_the_shown_word_too(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        assert minted.second_word
        assert "word" in await refused_redemption(gate, operation, OPERATOR, minted.token, "")
        task.cancel()


async def test_only_the_uid_that_saw_the_token_can_use_it(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        reason = await refused_redemption(gate, operation, STRANGER, minted.token, minted.second_word)
        assert "somebody else" in reason
        task.cancel()


async def test_showing_an_operation_again_voids_the_token_shown_before(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, first = await gate.show(operation.id, OPERATOR)
        await gate.show(operation.id, OPERATOR)
        await refused_redemption(gate, operation, OPERATOR, first.token, first.second_word)
        task.cancel()


async def test_the_token_of_one_operation_approves_no_other(house):
    async with house.open() as gate:
        one, first = await waiting(gate, house.cleanup())
        two = asyncio.create_task(gate.run(house.cleanup("t1.2.0.0"), lambda _p: None))
        async with asyncio.timeout(5):
            while len(found := await gate.pending()) < 2:
                await asyncio.sleep(0.005)
        other = next(item for item in found if item.id != first.id)
        _op, _preview, minted = await gate.show(first.id, OPERATOR)
        await gate.show(other.id, OPERATOR)
        await refused_redemption(gate, other, OPERATOR, minted.token, minted.second_word)
        one.cancel()
        two.cancel()


async def test_a_token_is_void_when_the_policy_has_changed_since_it_was_shown(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        text = (house.layers[1] / "permissions.toml").read_text()
        (house.layers[1] / "permissions.toml").write_text(text + "# another word\n")
        from hermesd.control.settings import load_policy

        gate.policy = load_policy(house.layers)
        reason = await refused_redemption(gate, operation, OPERATOR, minted.token, minted.second_word)
        assert "not what would run" in reason
        task.cancel()


async def test_no_and_nobody_end_the_request_with_their_own_outcomes(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        await gate.deny(operation.id, OPERATOR, "not now")
        denied = await task
        assert denied.status is ResultStatus.DENIED
        with pytest.raises(NotPending):
            await gate.show(operation.id, OPERATOR)
    assert [name for name, _job in house.sandbox.ran] == ["fs_targets"]


async def test_an_expired_operation_cannot_be_shown_before_any_sweeper_came(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        house.clock.forward(hours=4)
        with pytest.raises(NotPending):
            await gate.show(operation.id, OPERATOR)
        task.cancel()


async def test_an_operation_whose_life_is_over_ends_as_expired(house):
    (house.layers[1] / "daemon.toml").write_text("[stages]\nconfirm_ms = 30\n")
    async with house.open() as gate:
        task, _operation = await waiting(gate, house.cleanup())
        result = await task
    assert result.status is ResultStatus.EXPIRED
    confirm = next(timing for timing in result.stages if timing.name is Stage.CONFIRM)
    assert confirm.outcome is StageOutcome.TIMEOUT
    assert [name for name, _job in house.sandbox.ran] == ["fs_targets"]


async def test_an_operation_that_nobody_looked_at_in_its_life_ends_as_undeliverable(house):
    (house.layers[1] / "daemon.toml").write_text("[stages]\nconfirm_ms = 30\n")
    async with house.open() as gate:
        await gate.pending()  # before there was anything
        house.clock.forward(seconds=1)
        result = await gate.run(house.cleanup(), lambda _p: None)
        assert await gate.pending() == []
    assert (result.status, result.impact.files) == (ResultStatus.UNDELIVERABLE, 2)
    assert [name for name, _job in house.sandbox.ran] == ["fs_targets"]


async def test_what_a_restart_no_longer_permits_waits_for_nobody_any_more(house):
    permissions = house.layers[1] / "permissions.toml"
    async with house.open() as gate:
        await waiting(gate, house.cleanup())
    permissions.write_text(permissions.read_text().replace(f'"{house.data}"', ""))
    async with house.open() as gate:
        result = await gate.run(house.cleanup(), lambda _p: None)
        assert await gate.pending() == []
    assert result.status is ResultStatus.REFUSED


async def test_what_waits_for_a_person_waits_on_where_a_restart_finds_no_sandbox(house):
    async with house.open() as gate:
        await waiting(gate, house.cleanup())
    sandbox, house.sandbox = house.sandbox, None
    async with house.open() as gate:
        await asyncio.sleep(0.05)
        [operation] = await gate.pending()
        with pytest.raises(Stopped, match="no usable sandbox"):
            await gate.show(operation.id, OPERATOR)
        house.sandbox = gate.sandbox = sandbox
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
    assert result.status is ResultStatus.SUCCEEDED


async def test_what_runs_after_a_reload_is_what_was_shown_after_it(house):
    async with house.open() as gate:
        _task, operation = await waiting(gate, house.cleanup())
        shipped = (SHIPPED / "commands" / "fs-cleanup.toml").read_text()
        (house.layers[1] / "commands").mkdir()
        (house.layers[1] / "commands" / "fs-cleanup.toml").write_text("timeout_ms = 4321\n" + shipped)
        gate.policy = load_policy(house.layers)
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
    name, job = house.sandbox.ran[-1]
    assert (name, job.timeout_ms) == ("fs_remove", 4321)


async def test_a_withdrawn_operation_ends_as_cancelled_and_approves_no_more(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        assert await gate.cancel("t1.1.0.0")
        assert (await task).status is ResultStatus.CANCELLED
        with pytest.raises(NotPending):
            await gate.show(operation.id, OPERATOR)


async def test_a_removal_whose_world_moved_says_so_and_removed_nothing(house):
    house.sandbox.answers["fs_remove"] = Ended(3, b"", b"cache/a: changed since it was listed\n", 1.0)
    async with house.open() as gate:
        _task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
    assert result.status is ResultStatus.PLAN_CHANGED
    assert "cache/a" in result.reason


async def test_a_preview_that_lists_nothing_asks_nobody(house):
    house.sandbox.answers["fs_targets"] = Ended(0, b"", b"", 1.0)
    async with house.open() as gate:
        result = await gate.run(house.cleanup(), lambda _p: None)
        assert await gate.pending() == []
    assert result.status is ResultStatus.SUCCEEDED
    assert result.impact is not None
    assert result.impact.files == 0


async def test_what_waited_for_a_person_waits_on_after_a_restart_but_its_token_is_void(house):
    async with house.open() as gate:
        _task, operation = await waiting(gate, house.cleanup())
        _op, _preview, old = await gate.show(operation.id, OPERATOR)
    async with house.open() as gate:
        assert [item.id for item in await gate.pending()] == [operation.id]
        await refused_redemption(gate, operation, OPERATOR, old.token, old.second_word)
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        result = await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
        again = await gate.run(house.cleanup(), lambda _p: None)
    assert result.status is ResultStatus.SUCCEEDED
    assert again == result
    assert [name for name, _job in house.sandbox.ran].count("fs_remove") == 1


async def test_what_had_begun_when_the_executor_ended_is_unknown_and_never_run_again(house):
    house.sandbox.hold = asyncio.Event()
    async with house.open() as gate:
        asyncio.create_task(gate.run(house.request("system:load"), lambda _p: None))  # noqa: RUF006
        async with asyncio.timeout(5):
            while not house.sandbox.ran:
                await asyncio.sleep(0.005)
    async with house.open() as gate:
        assert house.in_doubt == ["t1.1.0.0"]
        result = await gate.run(house.request("system:load"), lambda _p: None)
    assert result.status is ResultStatus.UNKNOWN
    assert len(house.sandbox.ran) == 1


async def test_without_a_sandbox_nothing_runs_and_the_reason_is_told(house):
    async with house.open() as gate:
        gate.sandbox, gate.sandbox_reason = None, "bwrap is not installed"
        result = await gate.run(house.request("system:load"), lambda _p: None)
    assert result.status is ResultStatus.UNAVAILABLE
    assert "bwrap is not installed" in result.reason


class FullDisk:
    """An audit log on a disk that filled up."""

    async def record(self, *_args, **_fields):
        raise AuditError("audit log: No space left on device")


async def test_what_cannot_be_written_down_is_not_done_and_the_gate_stays_shut(house):
    async with house.open() as gate:
        gate._audit = FullDisk()
        first = await gate.run(house.request("system:load"), lambda _p: None)
        second = await gate.run(house.request("system:load", "t1.9.0.0"), lambda _p: None)
    assert first.status is ResultStatus.UNAVAILABLE
    assert second.status is ResultStatus.UNAVAILABLE
    assert "could not be written down" in second.reason
    assert house.sandbox.ran == []


async def test_a_confirmation_takes_no_effect_once_the_gate_is_shut(house):
    async with house.open() as gate:
        _task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        gate.shut(AuditError("audit log: No space left on device"))
        with pytest.raises(Stopped, match="No space left on device"):
            await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
        assert "No space left on device" in gate.shut_reason
        [still] = await gate.pending()
    assert still.id == operation.id
    assert {tool for tool, _job in house.sandbox.ran} == {"fs_targets"}, "previews ran, and nothing else"


async def test_what_was_under_way_when_the_gate_shut_has_no_effect(house):
    async with house.open() as gate:
        house.sandbox.on_resolve = lambda _job: gate.shut(AuditError("audit log: No space left on device"))
        result = await gate.run(house.request("system:load"), lambda _p: None)
    assert result.status is ResultStatus.UNAVAILABLE
    assert "No space left on device" in result.reason
    assert house.sandbox.ran == []


async def test_nothing_is_previewed_once_the_gate_is_shut(house):
    async with house.open() as gate:
        _task, operation = await waiting(gate, house.cleanup())
        before = len(house.sandbox.started)
        gate.shut(AuditError("audit log: No space left on device"))
        with pytest.raises(Stopped, match="No space left on device"):
            await gate.show(operation.id, OPERATOR)
        assert len(house.sandbox.started) == before


async def test_the_evidence_stands_before_the_effect_and_names_what_was_confirmed(house):
    async with house.open() as gate:
        _task, operation = await waiting(gate, house.cleanup())
        _op, preview, minted = await gate.show(operation.id, OPERATOR)
        await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
    records = list(read_records(house.folder / "audit", "t1"))
    kinds = [record["kind"] for record in records]
    assert kinds == [
        "operation.pending",
        "approval.shown",
        "operation.approved",
        "command.intent",
        "command.result",
    ]
    shown = records[1]
    assert (shown["uid"], shown["manifest"]) == (OPERATOR, preview.impact.manifest_digest)
    assert minted.token not in str(records)


async def test_a_look_that_somebody_wants_confirmed_waits_for_a_person(house):
    async with house.open() as gate:
        request = house.request("system:load").model_copy(update={"extra_confirmations": 1})
        task, operation = await waiting(gate, request)
        assert operation.impact.text == "only reads; runs /usr/bin/cat /proc/loadavg"
        assert house.sandbox.ran == []
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        assert minted.second_word == ""
        await gate.redeem(operation.id, OPERATOR, minted.token, "")
        assert (await task).status is ResultStatus.SUCCEEDED


async def test_progress_tells_each_stage_with_its_budget(house):
    progress, listen = heard()
    async with house.open() as gate:
        await gate.run(house.request("system:load"), listen)
    assert [item.stage for item in progress] == [Stage.VALIDATE, Stage.PREPARE, Stage.EXECUTE]
    assert [item.budget_ms for item in progress] == [5_000, 30_000, 10_000]


async def test_a_dry_run_of_a_removal_shows_its_impact_and_asks_nobody(house):
    async with house.open() as gate:
        request = house.cleanup().model_copy(update={"dry_run": True})
        result = await gate.run(request, lambda _p: None)
        assert await gate.pending() == []
    assert result.status is ResultStatus.SUCCEEDED
    assert result.reason.startswith("dry run: 2 files under")
