"""What every run is given: the store, the log, the hands, the settings in force when it began.

Built once in the composition root and handed down; a run reads its configuration once, so that a
reload changes no run under way. This module must never hold anything of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hermesd.agent.planner import Hear, Planner
from hermesd.audit import AuditLog
from hermesd.config import Config
from hermesd.incidents import Run
from hermesd.pipeline.follow import Followers
from hermesd.pipeline.hands import Hands
from hermesd.pipeline.resolutions import Resolutions
from hermesd.sources.bulletin import Bulletin
from hermesd.state.store import Store
from hermesd.telemetry import Metrics

Planners = Callable[[Run, Config, Hear], Sequence[Planner]]
"""Returns who plans for a run, in the order in which they are asked; they tell `Hear` what it took."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What runs share. ``config`` returns what is in force now; ``now`` is the wall clock in UTC."""

    store: Store
    audit: AuditLog
    metrics: Metrics
    hands: Hands
    planners: Planners
    followers: Followers
    resolutions: Resolutions
    config: Callable[[], Config]
    now: Callable[[], datetime]
    bulletin: Bulletin = field(default_factory=Bulletin)
