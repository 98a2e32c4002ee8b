"""The audit log: hash-chained, append-only, synced before the effect it speaks of.

One process writes one folder. A record is one line, ``HASH BODY``: BODY is JSON with sorted keys,
HASH is SHA-256 over the previous record's hash and BODY. A changed, deleted, inserted or swapped
record breaks the chain at its place; a tail that was cut off is found by comparing with an anchor,
the head that somebody else (the other process, journald) has written down.

`chain` walks and verifies, `log` writes, `files` is the folder on disk. No part of it may drop,
reorder or rewrite a record, or be given a secret or a person's words: callers pass digests of those.
"""

from hermesd.audit.chain import Anchor, Verification, chain, parse_anchor, read_records, verify
from hermesd.audit.files import AuditError, segments
from hermesd.audit.log import SEGMENT_BYTES, AuditLog, open_log

__all__ = [
    "SEGMENT_BYTES",
    "Anchor",
    "AuditError",
    "AuditLog",
    "Verification",
    "chain",
    "open_log",
    "parse_anchor",
    "read_records",
    "segments",
    "verify",
]
