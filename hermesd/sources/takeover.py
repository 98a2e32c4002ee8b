"""Whether another client has our session: said by the broker, or seen as churn.

Two clients with one id throw each other out for ever. A broker of MQTT 5 may say why it ended the
connection; others just end it, and what is left to see is that the broker is there at once, lets us
in, and ends us again. A broker that restarts refuses connections in between: that resets the count.

This module must never wait, and never end anything: it only counts.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final

SESSION_TAKEN_OVER: Final = 142
"""MQTT 5's reason code in a DISCONNECT."""

CHURN_ENDS: Final = 4
CHURN_WITHIN: Final = timedelta(minutes=5)


class Churn:
    """Counts established connections that the broker ended, with none that failed between them."""

    def __init__(self) -> None:
        self._ends: deque[datetime] = deque(maxlen=CHURN_ENDS)

    def not_established(self) -> None:
        """Hear that a connection could not be made: the broker was away, so this is no twin."""
        self._ends.clear()

    def ended(self, now: datetime) -> bool:
        """Hear that an established connection was ended; say whether a twin must be behind it."""
        self._ends.append(now)
        return len(self._ends) == CHURN_ENDS and now - self._ends[0] <= CHURN_WITHIN
