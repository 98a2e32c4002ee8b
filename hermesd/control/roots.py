"""Paths as text: normal form, whole components, and which root a path lies beneath.

Text only: nothing here looks at a file system. What a name really is, the container's stub finds
out beneath the mounted root, and the executor compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_PATH_BYTES: Final = 4096


def normal_path_fault(path: str) -> str:
    """Return why ``path`` is not an absolute path in normal form; "" when it is."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if len(path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if "\0" in path:
        return "holds a NUL"
    if path == "/":
        return ""
    parts = path[1:].split("/")
    if ".." in parts:
        return "holds '..'"
    if "" in parts or "." in parts:
        return "is not in normal form (an empty or '.' component)"
    return ""


def beneath(path: str, root: str) -> str | None:
    """Return what of ``path`` lies beneath ``root``, by whole components; None when it is outside."""
    if root == "/":
        return path[1:]
    if path == root:
        return ""
    return path[len(root) + 1 :] if path.startswith(root + "/") else None


def overlap(left: str, right: str) -> str | None:
    """Return the deeper of two roots when one lies beneath the other; None when they are apart."""
    if beneath(left, right) is not None:
        return left
    if beneath(right, left) is not None:
        return right
    return None


def intersect(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """Return the roots that are within both sets, each once, deepest last."""
    others = tuple(theirs)
    found = {root for left in ours for right in others if (root := overlap(left, right)) is not None}
    return tuple(sorted(found, key=lambda root: (root.count("/"), root)))


def nearest(path: str, roots: Iterable[str]) -> str | None:
    """Return the deepest of ``roots`` that ``path`` lies beneath; None when there is none.

    A unit's ReadWritePaths= makes each of them a mount of its own, which no shallower root leads into.
    """
    found = [root for root in roots if beneath(path, root) is not None]
    return max(found, key=lambda root: (root.count("/"), root), default=None)


def covering(path: str, roots: Iterable[str]) -> str | None:
    """Return the shallowest of ``roots`` that ``path`` lies beneath; None when there is none."""
    return min(
        (root for root in roots if beneath(path, root) is not None),
        key=lambda root: (root.count("/"), root),
        default=None,
    )
