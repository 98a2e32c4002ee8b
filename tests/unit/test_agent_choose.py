from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.agent.choose import arguments_in, choose_runbook
from hermesd.agent.runbook_file import Runbook
from hermesd.confd import named, read_folder

RUNBOOKS = [
    named(file).read(Runbook) for file in read_folder([Path(__file__).parents[2] / "conf.d"], "runbooks")
]


@pytest.mark.parametrize(
    ("sentence", "runbook", "arguments"),
    [
        ("帮我看看内存", "memory", {}),
        ("服务器的内存够用吗？", "memory", {}),
        ("check the disk on /var", "disk-full", {"path": "/var"}),
        ("Check the DISK on /var/log/.", "disk-full", {"path": "/var/log"}),
        ("磁盘空间还剩多少", "disk-full", {}),
        ("/srv/app磁盘满了吗", "disk-full", {"path": "/srv/app"}),
        ("why is memory short?", "memory", {}),
        ("清理/var/cache/app下的缓存", "cleanup", {"path": "/var/cache/app"}),
        ("clean up the disk at /srv/app", "cleanup", {"path": "/srv/app"}),
        ("free up space in /srv/app please", "cleanup", {"path": "/srv/app"}),
        ("is nginx.service down", "health-down", {"unit": "nginx.service"}),
        ("服务为什么宕机了", "health-down", {}),
        ("the server is slow", "inspect", {}),
        ("做一次巡检", "inspect", {}),
        ("how is the memory of this server", "memory", {}),
    ],
)
def test_a_sentence_names_its_runbook_and_what_to_look_at(sentence, runbook, arguments):
    choice = choose_runbook(sentence, RUNBOOKS)
    assert choice is not None
    assert (choice.runbook, choice.arguments) == (runbook, arguments)
    assert choice.reason.startswith("the sentence says ")


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "hello",
        "今天天气怎么样",
        "is the disk or the memory the problem",
        "don't clean /var/cache",
        "不要清理 /var/cache",
        "never free up anything",
        "diskette and memoryless",
        "what is in /var/cache/memory",
    ],
)
def test_being_unsure_is_an_answer(sentence):
    assert choose_runbook(sentence, RUNBOOKS) is None


def test_two_paths_name_none():
    assert arguments_in("compare /var and /srv") == {}


@pytest.mark.parametrize("sentence", ["and/or", "24/7", "http://host/path", "a ratio of 3/4"])
def test_not_every_stroke_is_a_path(sentence):
    assert "path" not in arguments_in(sentence)


def test_an_operation_is_named_by_its_whole_id():
    assert arguments_in("undo op-run-1f.2.0.1, please") == {"operation": "op-run-1f.2.0.1"}
    assert arguments_in("撤销 op-run-1f.2.0.1。") == {"operation": "op-run-1f.2.0.1"}
    assert arguments_in("undo op-a.1 or op-b.1, and stop-gap or co-op-1") == {}


def test_the_root_is_a_path():
    assert arguments_in("how full is / now") == {"path": "/"}


def test_without_runbooks_there_is_no_choice():
    assert choose_runbook("check the disk", []) is None


def test_the_order_of_the_runbooks_changes_nothing():
    assert choose_runbook("check the disk", RUNBOOKS) == choose_runbook("check the disk", RUNBOOKS[::-1])
