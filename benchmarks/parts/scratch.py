"""Where benches have their runs and data."""

from __future__ import annotations

from pathlib import Path

from dayfly.life.sessions import Session


def scratch_of(session: Session) -> Path:
    """A new directory that goes with the session, also if it is killed.

    On disk, as runs are by default; the session's own directory is in memory.
    """
    return session.scratch("dayfly-bench")
