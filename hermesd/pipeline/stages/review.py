"""Review: whether the condition that opened the incident still holds.

After a change the run waits, within its clock, until the source has seen the condition clear: it is
woken by the news and looks nowhere by itself. Without a change nothing could have cleared it, so
nothing is waited for.
"""

from __future__ import annotations

from hermesd.clocks import StageTimeout
from hermesd.incidents import IncidentStatus
from hermesd.pipeline.passage import Passage
from hermesd.protocol import Stage
from hermesd.state.incidents import find_incident


async def review(passage: Passage, *, changed: bool) -> bool:
    """Return whether the run's incident was seen to end. Not having seen it in time is an answer too."""
    try:
        async with passage.stage(Stage.REVIEW):
            cleared = await _is_cleared(passage, changed=changed)
    except StageTimeout:
        cleared = False
    passage.tell(passage.words.resolved if cleared else passage.words.waits if _has_incident(passage) else "")
    return cleared


def _has_incident(passage: Passage) -> bool:
    return passage.run.incident_id is not None


async def _is_cleared(passage: Passage, *, changed: bool) -> bool:
    incident_id = passage.run.incident_id
    if incident_id is None:
        return False
    with passage.kit.resolutions.listening(incident_id) as heard:
        incident = await passage.kit.store.read(lambda connection: find_incident(connection, incident_id))
        if incident is not None and incident.status is IncidentStatus.RESOLVED:
            return True
        if not changed:
            return False
        await heard.wait()  # its clock is the stage's
    return True
