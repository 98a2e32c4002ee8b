"""Roles, tickets, takeovers: what a person's hands are for."""

import asyncio
import os
import pwd

import pytest

from hermesd.audit import read_records
from hermesd.control.gate import NotPending
from hermesd.control.host import group_id, group_names
from hermesd.control.ledger import OperationStatus
from hermesd.control.outcome import Stopped
from hermesd.control.permits import approval_fault, permit_for
from hermesd.control.sandbox.base import Ended
from hermesd.control.settings import Permissions, Reach, Role
from hermesd.protocol import ResultStatus, RunKind

OPERATOR = 4711


def nobody(_uid: int) -> frozenset[str]:
    return frozenset()


def groups(**members):
    return lambda uid: frozenset(name for name, uids in members.items() if uid in uids)


def permissions(**roles: Role) -> Permissions:
    return Permissions(
        reach=Reach(readable_roots=("/var", "/srv"), writable_roots=("/srv/cache",)), roles=roles
    )


def test_without_roles_everybody_has_the_reach_and_no_more():
    permit = permit_for(permissions(), "event", None, nobody)
    assert (permit.readable_roots, permit.writable_roots) == (("/var", "/srv"), ("/srv/cache",))
    assert permit.allows("fs:cleanup")


def test_a_run_kinds_role_narrows_commands_and_roots_for_that_kind_alone():
    rules = permissions(night=Role(kinds=("event",), commands=("system:*",), readable_roots=("/var/log",)))
    permit = permit_for(rules, "event", None, nobody)
    assert permit.readable_roots == ("/var/log",)
    assert permit.allows("system:load")
    assert not permit.allows("fs:largest")
    assert permit_for(rules, "person", None, nobody).allows("fs:largest")


def test_a_role_never_widens_the_reach():
    rules = permissions(
        wide=Role(kinds=("event",), readable_roots=("/etc", "/var/log"), writable_roots=("/",))
    )
    permit = permit_for(rules, "event", None, nobody)
    assert permit.readable_roots == ("/var/log",)
    assert permit.writable_roots == ("/srv/cache",)


def test_the_kind_of_the_run_and_who_asked_must_both_allow_a_command():
    rules = permissions(
        asked=Role(kinds=("person",), commands=("system:*", "fs:*")),
        guests=Role(groups=("guests",), commands=("system:*",)),
    )
    of = groups(guests={7})
    assert permit_for(rules, "person", 7, of).allows("system:load")
    assert not permit_for(rules, "person", 7, of).allows("fs:largest")
    assert permit_for(rules, "person", 8, of).allows("fs:largest")


def test_a_role_says_what_its_members_may_approve_and_whether_their_own():
    rules = permissions(
        juniors=Role(uids=(7,), may_approve=("log:*",)), careful=Role(uids=(8,), approve_own=False)
    )
    assert "may not approve this command" in approval_fault(rules, 7, "fs:cleanup", None, nobody)
    assert approval_fault(rules, 8, "fs:cleanup", 9, nobody) == ""
    assert "asked for yourself" in approval_fault(rules, 8, "fs:cleanup", 8, nobody)


async def waiting(gate, request):
    task = asyncio.create_task(gate.run(request, lambda _progress: None))
    async with asyncio.timeout(5):
        while not (found := [item for item in await gate.pending() if item.request == request]):
            await asyncio.sleep(0.005)
    return task, found[0]


async def repaired(house, gate, request_id):
    task, operation = await waiting(gate, house.cleanup(request_id))
    _op, _preview, minted = await gate.show(operation.id, OPERATOR)
    await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
    return await task


async def test_a_role_that_may_not_approve_is_shown_nothing_and_mints_nothing(house):
    with (house.layers[1] / "permissions.toml").open("a") as file:
        file.write('[roles.juniors]\nuids = [4711]\nmay_approve = ["log:*"]\n')
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        with pytest.raises(Stopped, match="may not approve"):
            await gate.show(operation.id, OPERATOR)
        task.cancel()


async def test_a_kind_of_run_whose_role_lacks_the_command_is_refused(house):
    with (house.layers[1] / "permissions.toml").open("a") as file:
        file.write('[roles.night]\nkinds = ["event"]\ncommands = ["system:*"]\n')
    async with house.open() as gate:
        refused = await gate.run(house.request("fs:largest", path=str(house.data)), lambda _p: None)
        asked = house.request("fs:largest", "t1.2.0.0", path=str(house.data))
        allowed = await gate.run(asked.model_copy(update={"origin": RunKind.PERSON}), lambda _p: None)
    assert refused.status is ResultStatus.REFUSED
    assert allowed.status is ResultStatus.SUCCEEDED


async def test_the_third_refusal_in_a_row_leaves_the_run_nothing_but_looking_until_it_is_released(house):
    async with house.open() as gate:
        for number in range(3):
            await gate.run(house.request("no:such", f"t1.{number}.0.0"), lambda _p: None)
        refused = await gate.run(house.cleanup("t1.4.0.0"), lambda _p: None)
        looked = await gate.run(house.request("system:load", "t1.5.0.0"), lambda _p: None)
        assert refused.status is ResultStatus.TAKEN_OVER
        assert "a person has t1" in refused.reason
        assert looked.status is ResultStatus.SUCCEEDED
        await gate.release("t1", OPERATOR)
        task, _operation = await waiting(gate, house.cleanup("t1.6.0.0"))
        task.cancel()


async def test_a_look_between_two_refusals_begins_the_count_anew(house):
    async with house.open() as gate:
        for number in range(4):
            await gate.run(house.request("no:such", f"t1.{number}.0.0"), lambda _p: None)
            if number == 1:
                await gate.run(house.request("system:load", "t1.9.0.0"), lambda _p: None)
        assert await gate.takeovers() == []


async def test_a_target_that_was_repaired_twice_in_a_day_is_a_persons_and_stays_so_after_a_restart(house):
    async with house.open() as gate:
        for number in range(2):
            assert (await repaired(house, gate, f"t1.{number}.0.0")).status is ResultStatus.SUCCEEDED
        third = await gate.run(house.cleanup("t1.3.0.0"), lambda _p: None)
        assert third.status is ResultStatus.TAKEN_OVER
    async with house.open() as gate:
        assert [item.target for item in await gate.takeovers()] == [str(house.data)]
        house.clock.forward(hours=25)
        again = await gate.run(house.cleanup("t1.4.0.0"), lambda _p: None)
        assert again.status is ResultStatus.TAKEN_OVER
        await gate.release(str(house.data), OPERATOR)
        assert (await repaired(house, gate, "t1.5.0.0")).status is ResultStatus.SUCCEEDED


async def test_whoever_approves_in_quick_succession_is_asked_once_more(house):
    async with house.open() as gate:
        for number in range(4):
            request = house.request("system:load", f"t1.{number}.0.0").model_copy(
                update={"extra_confirmations": 1}
            )
            task, operation = await waiting(gate, request)
            _op, _preview, minted = await gate.show(operation.id, OPERATOR)
            assert bool(minted.second_word) == (number == 3)
            await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
            await task


TICKET = """\
name = "unit:restart_by_hand"
description = "Restarts a unit; only a person may do it, so this becomes a ticket."
effect = "read"
permission = "confidential"
executable = "/usr/bin/cat"
argv = ["{unit}"]
[args.unit]
type = "unit"
description = "The unit"
"""


async def test_what_only_a_person_may_do_becomes_a_durable_ticket_and_runs_nothing(house):
    (house.layers[1] / "commands").mkdir()
    (house.layers[1] / "commands" / "ticket.toml").write_text(TICKET)
    async with house.open() as gate:
        request = house.request("unit:restart_by_hand", unit="nginx.service")
        result = await gate.run(request, lambda _p: None)
        assert result.status is ResultStatus.TICKETED
    async with house.open() as gate:
        [ticket] = await gate.queue()
        assert "nginx.service" in ticket.impact.text
        await gate.move_ticket(ticket.id, OperationStatus.TAKEN, OPERATOR, "")
        assert [(item.status, item.decided_by) for item in await gate.queue()] == [
            (OperationStatus.TAKEN, OPERATOR)
        ]
        await gate.move_ticket(ticket.id, OperationStatus.CLOSED, OPERATOR, "restarted it")
        assert await gate.queue() == []
        with pytest.raises(NotPending):
            await gate.move_ticket(ticket.id, OperationStatus.CLOSED, OPERATOR, "again")
    assert house.sandbox.started == []


async def test_two_changes_never_write_at_the_same_time(house):
    order = []
    original = house.sandbox.start

    async def start(profile):
        container = await original(profile)
        if profile.mounts and profile.mounts[0].mode == "rw":
            run = container.run

            async def timed() -> Ended:
                order.append("begin")
                await asyncio.sleep(0.05)
                order.append("end")
                return await run()

            container.run = timed
        return container

    house.sandbox.start = start
    async with house.open() as gate:
        tasks = []
        for number in range(2):
            task, operation = await waiting(
                gate, house.cleanup(f"t{number}.1.0.0").model_copy(update={"task_id": f"t{number}"})
            )
            tasks.append((task, operation))
        approvals = []
        for _task, operation in tasks:
            _op, _preview, minted = await gate.show(operation.id, OPERATOR)
            approvals.append(gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word))
        await asyncio.gather(*approvals)
    assert order == ["begin", "end", "begin", "end"]


async def test_a_released_run_is_counted_anew_and_a_restart_forgets_no_refusal(house):
    async def refuse(gate, number):
        house.clock.forward(seconds=1)
        await gate.run(house.request("no:such", f"t1.{number}.0.0"), lambda _p: None)
        return [item.target for item in await gate.takeovers()]

    async with house.open() as gate:
        assert [await refuse(gate, number) for number in range(2)] == [[], []]
    async with house.open() as gate:
        assert await refuse(gate, 2) == ["t1"]
        house.clock.forward(seconds=1)
        await gate.release("t1", OPERATOR)
        assert [await refuse(gate, number) for number in range(3, 6)] == [[], [], ["t1"]]


async def test_a_released_target_may_be_repaired_twice_again(house):
    target = str(house.data)
    async with house.open() as gate:
        for number in range(2):
            await repaired(house, gate, f"t1.{number}.0.0")
        await gate.run(house.cleanup("t1.2.0.0"), lambda _p: None)
        house.clock.forward(minutes=1)
        await gate.release(target, OPERATOR)
        house.clock.forward(minutes=1)
        ended = [(await repaired(house, gate, f"t1.{number}.0.0")).status for number in range(3, 5)]
        again = await gate.run(house.cleanup("t1.5.0.0"), lambda _p: None)
    assert ended == [ResultStatus.SUCCEEDED] * 2
    assert again.reason.endswith(f"a person has {target} from now on")


async def test_a_third_repair_of_one_target_is_the_third_in_whatever_words_it_is_asked_for(house):
    async with house.open() as gate:
        for number in range(2):
            await repaired(house, gate, f"t1.{number}.0.0")
        asked = house.request("fs:cleanup", "t2.1.0.0", path=str(house.data), older_than_s=7200)
        third = await gate.run(asked, lambda _p: None)
    assert third.status is ResultStatus.TAKEN_OVER
    assert "a person has" in third.reason


async def test_what_waited_while_two_repairs_were_done_is_the_third_and_not_shown(house):
    async with house.open() as gate:
        third, operation = await waiting(gate, house.cleanup("t9.1.0.0"))
        for number in range(2):
            await repaired(house, gate, f"t1.{number}.0.0")
        with pytest.raises(Stopped, match="did not last"):
            await gate.show(operation.id, OPERATOR)
        third.cancel()


async def test_a_takeover_is_in_the_audit_log_once_with_its_reason(house):
    async with house.open() as gate:
        for number in range(5):
            await gate.run(house.request("no:such", f"t1.{number}.0.0"), lambda _p: None)
    begun = [one for one in read_records(house.folder / "audit") if one["kind"] == "takeover.begun"]
    assert [(one["target"], one["reason"]) for one in begun] == [("t1", "3 requests in a row were refused")]


async def test_what_waited_when_its_target_was_taken_over_is_neither_shown_nor_confirmed(house):
    async with house.open() as gate:
        task, operation = await waiting(gate, house.cleanup())
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        for number in range(3):
            await gate.run(house.request("no:such", f"t1.9.{number}.0"), lambda _p: None)
        with pytest.raises(Stopped, match="a person has t1"):
            await gate.redeem(operation.id, OPERATOR, minted.token, minted.second_word)
        with pytest.raises(Stopped, match="a person has t1"):
            await gate.show(operation.id, OPERATOR)
        task.cancel()
    assert [name for name, _job in house.sandbox.ran] == ["fs_targets", "fs_targets"]


async def test_each_further_confirmation_is_a_word_more(house):
    async with house.open() as gate:
        request = house.cleanup().model_copy(update={"extra_confirmations": 2})
        task, operation = await waiting(gate, request)
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        words = minted.second_word.split()
        with pytest.raises(Stopped, match="not the word"):
            await gate.redeem(operation.id, OPERATOR, minted.token, words[0])
        task.cancel()
    assert len(words) == 3


RESET = """\
name = "test:reset"
description = "Resets a service, for the tests of what is confirmed twice."
effect = "change"
permission = "internal"
preview = "fs:cleanup_preview"
executable = "/usr/bin/cat"
argv = ["{unit}", "{path}"]
[args.unit]
type = "unit"
description = "The unit"
[args.path]
type = "path"
description = "The folder"
roots = ["/tmp"]
"""


async def test_a_change_of_a_service_needs_the_word_too(house):
    (house.layers[1] / "commands").mkdir()
    (house.layers[1] / "commands" / "preview.toml").write_text(
        RESET.replace("test:reset", "test:see").replace('"change"', '"read"').replace('preview = "fs', '# "')
    )
    text = RESET.replace("fs:cleanup_preview", "test:see")
    (house.layers[1] / "commands" / "reset.toml").write_text(text)
    house.sandbox.answers["/usr/bin/cat"] = Ended(0, b"1 7 1 8 0 33188 1000 1000 1 a\0", b"", 1.0)
    async with house.open() as gate:
        request = house.request("test:reset", unit="nginx.service", path=str(house.data))
        task, operation = await waiting(gate, request)
        _op, _preview, minted = await gate.show(operation.id, OPERATOR)
        task.cancel()
    assert len(minted.second_word.split()) == 1


async def test_a_dry_run_of_what_only_a_person_may_do_leaves_no_ticket(house):
    (house.layers[1] / "commands").mkdir()
    (house.layers[1] / "commands" / "ticket.toml").write_text(TICKET)
    async with house.open() as gate:
        request = house.request("unit:restart_by_hand", unit="nginx.service")
        result = await gate.run(request.model_copy(update={"dry_run": True}), lambda _p: None)
        assert await gate.queue() == []
    assert result.status is ResultStatus.SUCCEEDED
    assert result.reason.startswith("dry run: would wait for a person")


def test_a_role_and_the_operators_group_may_be_named_by_number():
    entry = pwd.getpwuid(os.getuid())
    by_number = permissions(mine=Role(groups=(str(entry.pw_gid),), commands=("log:*",)))
    permit = permit_for(by_number, "person", entry.pw_uid, group_names)
    assert (permit.allows("log:tail"), permit.allows("fs:list")) == (True, False)
    assert group_id("4711") == 4711


async def test_releasing_what_nobody_has_resets_no_count(house):
    async with house.open() as gate:
        for number in range(2):
            await gate.run(house.request("no:such", f"t1.{number}.0.0"), lambda _p: None)
        house.clock.forward(seconds=1)
        with pytest.raises(NotPending):
            await gate.release("t1", OPERATOR)
        await gate.run(house.request("no:such", "t1.2.0.0"), lambda _p: None)
        assert [item.target for item in await gate.takeovers()] == ["t1"]
