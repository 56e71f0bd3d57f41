"""`plan.json`: a profile, a configuration, and what it is predicted to take.

    {"version": 1, "settings": {...}, "job": {...}, "profile": {...}, "prediction": {...} | null}

`settings` are those of `dayfly train` (`runs.settings.Settings`, by their names), `job` says
batch_size and epochs in place of the job's. So a plan is all that `dayfly train JOB.py --plan` and
`dayfly simulate` need, and can be written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dayfly.plan.prediction import Prediction
from dayfly.plan.profile import Profile

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """See above. settings: as JSON has them. prediction: None until it is made."""

    settings: Mapping[str, Any]
    job: Mapping[str, Any]
    profile: Profile
    prediction: Prediction | None = None
