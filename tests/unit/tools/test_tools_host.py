"""The tools that read the kernel's tables and configuration, on texts as the kernel writes them."""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

from hermesd.control.tools import (
    cpu_use,
    cron_list,
    fs_expired_logs,
    fs_growing,
    fs_list,
    host_mounts,
    listeners,
    log_stats,
    pressure,
    process_status,
    read_lines,
)

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1
   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4243 1
"""
OLD = 1_000_000_000


def run(tool, folder, *arguments):
    out, err = io.StringIO(), io.StringIO()
    fd = os.open(folder, os.O_RDONLY)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            status = tool.main([str(fd), *arguments])
    finally:
        os.close(fd)
    return status, out.getvalue(), err.getvalue()


def rows(output):
    return [json.loads(line) for line in output.splitlines()]


def test_only_a_listening_socket_is_a_row_with_its_address_as_people_write_it():
    found = listeners.parse("tcp", "0A", TCP)
    assert [(row["address"], row["port"], row["uid"], row["everywhere"]) for row in found] == [
        ("127.0.0.1", 8080, 1000, False)
    ]


def test_addresses_of_version_six_leave_their_longest_zeros_out():
    assert sys.byteorder == "little"
    assert listeners.address_of("0" * 32) == "::"
    assert listeners.address_of("00000000000000000000000001000000") == "::1"
    assert listeners.address_of("B80D0120000000000000000001000000") == "2001:db8::1"


def test_the_kernels_own_mounts_are_left_out_and_escapes_undone():
    table = "proc /proc proc rw 0 0\n/dev/sda1 /mnt/a\\040b ext4 ro,noatime 0 0\n"
    assert host_mounts.parse(table) == [
        {
            "mount_point": "/mnt/a b",
            "source": "/dev/sda1",
            "fstype": "ext4",
            "read_only": True,
            "options": "ro,noatime",
        }
    ]


def test_pressure_is_told_by_span():
    text = "some avg10=1.50 avg60=0.20 avg300=0.00 total=9\nfull avg10=0.10 avg60=0.00 avg300=0.00 total=1\n"
    found = pressure.parse("io", text)
    assert (found["some_10s_percent"], found["full_10s_percent"]) == (1.5, 0.1)
    assert pressure.parse("io", "") == {}


def test_what_a_processor_did_is_the_difference_of_two_readings():
    before = cpu_use.parse("cpu  100 0 100 800 0 0 0 0 0 0\n")["cpu"]
    after = cpu_use.parse("cpu  150 0 100 840 10 0 0 0 0 0\n")["cpu"]
    found = cpu_use.share(before, after)
    assert (found["busy_percent"], found["user_percent"], found["iowait_percent"]) == (50.0, 50.0, 10.0)
    assert cpu_use.share(after, after) == {}


def test_a_process_tells_its_limits_and_its_unit():
    line = "Max open files            1024                 524288               files     \n"
    assert process_status.limits(line) == {"limit_open_files": 1024}
    assert process_status.unit("0::/system.slice/nginx.service\n") == "nginx.service"
    assert process_status.unit("0::/\n") == ""


def test_cron_entries_are_told_apart_from_comments_and_settings():
    text = "# m h dom\nPATH=/bin\n30 3 * * * root /usr/bin/backup -a\n#@daily app /bin/off\n"
    found = list(cron_list.entries("/etc/cron.d/x", text, system=True))
    assert [(row["line"], row["when"], row["user"], row["command"], row["enabled"]) for row in found] == [
        (3, "30 3 * * *", "root", "/usr/bin/backup -a", True),
        (4, "@daily", "app", "/bin/off", False),
    ]


def test_a_folder_is_listed_with_links_as_links_and_a_total(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 100)
    (tmp_path / "out").symlink_to("/etc/shadow")
    status, out, _ = run(fs_list, tmp_path, "1", "size")
    assert status == 0
    assert [row.get("path") for row in rows(out)] == ["big", None]
    assert rows(out)[-1]["entries"] == 2
    assert "link" in run(fs_list, tmp_path, "9", "name")[1]


def test_only_what_was_written_to_lately_is_growing(tmp_path):
    (tmp_path / "new").write_bytes(b"x" * 5000)
    (tmp_path / "old").write_bytes(b"x" * 9000)
    os.utime(tmp_path / "old", (OLD, OLD))
    found = rows(run(fs_growing, tmp_path, "9", "3600")[1])
    assert [row["path"] for row in found[:-1]] == ["new"]
    assert found[-1]["files"] == 1


def test_expired_logs_are_the_rotated_and_old_ones(tmp_path):
    for name in ("app.log", "app.log.1", "app.log.2", "data.bin"):
        (tmp_path / name).write_bytes(b"x")
    for name in ("app.log", "app.log.2", "data.bin"):
        os.utime(tmp_path / name, (OLD, OLD))
    found = rows(run(fs_expired_logs, tmp_path, "9", "86400")[1])
    assert [row["path"] for row in found[:-1]] == ["app.log.2"]


def test_lines_of_a_text_are_shown_and_what_is_no_text_is_not(tmp_path):
    (tmp_path / "a.conf").write_text("one\ntwo\nthree\n")
    (tmp_path / "a.bin").write_bytes(b"\0\1")
    assert run(read_lines, tmp_path / "a.conf", "2", "1")[:2] == (0, "two\n")
    assert run(read_lines, tmp_path / "a.conf", "9", "1")[0] == 1
    assert "not a text" in run(read_lines, tmp_path / "a.bin", "1", "9")[2]
    assert "folder" in run(read_lines, tmp_path, "1", "9")[2]


def test_statistics_keep_to_their_dates_and_count_by_hour(tmp_path):
    log = tmp_path / "app.log"
    log.write_text(
        "2026-11-30 02:59:59 error too early\n"
        "2026-11-30 03:00:00 error disk\n  with a second line\n"
        "2026-11-30 04:10:00 warning slow\n"
        "2026-11-30 05:00:01 error too late\n"
    )
    found = rows(run(log_stats, log, "2026-11-30 03:00:00", "2026-11-30 05:00:00")[1])[0]
    assert (found["lines"], found["errors"], found["warnings"]) == (3, 1, 1)
    assert (found["first"], found["last"]) == ("2026-11-30T03:00:00", "2026-11-30T04:10:00")
    assert found["hours"] == [
        {"hour": "2026-11-30T03", "lines": 1, "errors": 1, "warnings": 0},
        {"hour": "2026-11-30T04", "lines": 1, "errors": 0, "warnings": 1},
    ]


def test_a_time_without_a_year_is_of_the_last_one_before_the_file_was_written(tmp_path):
    log = tmp_path / "syslog"
    log.write_text("Dec 31 23:00:00 host app: error x\nJan  1 01:00:00 host app: error y\n")
    os.utime(log, (1_767_232_800, 1_767_232_800))  # 2026-01-01T02:00:00Z
    found = rows(run(log_stats, log, "2025-12-31 22:00:00", "2026-01-01 00:00:00")[1])[0]
    assert (found["lines"], found["hours"][0]["hour"]) == (1, "2025-12-31T23")
