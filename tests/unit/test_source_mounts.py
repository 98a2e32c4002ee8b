from hermesd.sources.mounts import Mount, choose_mounts, parse_mountinfo, read_mounts

TEXT = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12334460k
25 24 0:23 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw,size=24684084k
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw,discard
28 27 0:25 / /opt/image rw,relatime - tmpfs image ro,size=4k
29 27 8:17 / /mnt/with\040space ro,nosuid - xfs /dev/sdb1 rw
30 27 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro
31 27 0:40 / /var/lib/docker/overlay2/abc/merged rw - overlay overlay rw,lowerdir=/x
garbage line
32 27 254:0 /srv/data /data rw,relatime - ext4 /dev/vda1 rw,discard
"""


def chosen(mounts, only=(), exclude=()):
    return [mount.path for mount in choose_mounts(mounts, only, exclude)]


def test_a_line_of_mountinfo_is_read_with_its_optional_fields_and_escapes():
    mounts = {mount.path: mount for mount in parse_mountinfo(TEXT)}
    assert mounts["/"] == Mount("/", "/dev/vda1", "ext4", "254:0")
    assert not mounts["/mnt/with space"].read_only
    assert mounts["/mnt/with space"].mounted_read_only
    assert mounts["/data"].root == "/srv/data"
    assert mounts["/mnt/with space"].device == "/dev/sdb1"


def test_kernel_interfaces_images_and_overlays_are_not_measured():
    assert chosen(parse_mountinfo(TEXT)) == ["/", "/dev/shm", "/mnt/with space"]


def test_a_read_only_mount_of_a_writable_file_system_is_measured():
    """In a hardened unit every mount is read-only, while the file system beneath fills up."""
    assert "/mnt/with space" in chosen(parse_mountinfo(TEXT))
    assert "/opt/image" not in chosen(parse_mountinfo(TEXT))


def test_the_root_is_measured_even_when_it_is_an_overlay():
    assert chosen([Mount("/", "overlay", "overlay", "0:50")]) == ["/"]


def test_a_file_system_mounted_twice_is_measured_once_at_its_whole_mount():
    bind = Mount("/a", "/dev/x", "ext4", "8:1", root="/deep/inside")
    whole = Mount("/long/mount/point", "/dev/x", "ext4", "8:1")
    shorter = Mount("/mnt", "/dev/x", "ext4", "8:1")
    assert chosen([bind, whole]) == ["/long/mount/point"]
    assert chosen([bind, whole, shorter]) == ["/mnt"]


def test_what_a_later_mount_hides_is_not_measured_in_its_place():
    hidden = Mount("/mnt", "/dev/x", "ext4", "8:1")
    on_top = Mount("/mnt", "/dev/y", "ext4", "8:2")
    assert [mount.device for mount in choose_mounts([hidden, on_top], (), ())] == ["/dev/y"]


def test_only_and_exclude_take_mount_points_and_patterns_and_exclude_wins():
    mounts = [Mount(path, path, "ext4", path) for path in ("/", "/srv/a", "/srv/b")]
    assert chosen(mounts, only=["/"]) == ["/"]
    assert chosen(mounts, only=["/srv/*"]) == ["/srv/a", "/srv/b"]
    assert chosen(mounts, exclude=["/srv/*"]) == ["/"]
    odd = [Mount("/mnt/[a]", "/dev/x", "ext4", "8:9")]
    assert chosen(odd, only=["/mnt/[a]"]) == ["/mnt/[a]"]
    assert chosen(mounts, only=["/srv/*"], exclude=["/srv/b"]) == ["/srv/a"]


def test_the_mounts_of_this_machine_are_read():
    assert "/" in {mount.path for mount in read_mounts()}
