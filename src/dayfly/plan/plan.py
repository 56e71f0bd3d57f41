"""`plan.json`: a profile, a configuration, and what it is predicted to take.

    {"version": 1, "settings": {...}, "job": {...}, "profile": {...}, "prediction": {...} | null}

`settings` are those of `dayfly train` (`runs.settings.Settings`, by their names). `job` says
batch_size and epochs in place of the job's, and where they are not the usual ones validate_every,
and clips: whether gradients are clipped. So a plan is all that `dayfly train JOB.py --plan` and
`dayfly simulate` need, and can be written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dayfly.errors import RequestError
from dayfly.plan import trees
from dayfly.plan.prediction import Prediction
from dayfly.plan.profile import Profile
from dayfly.plan.profile_file import dump_profile, load_profile

VERSION = 1

_KEYS = {"version", "settings", "job", "profile", "prediction"}
_OF_THE_JOB = {"batch_size", "epochs", "validate_every", "clips"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """See above. settings: as JSON has them. prediction: None until it is made."""

    settings: Mapping[str, Any]
    job: Mapping[str, Any]
    profile: Profile
    prediction: Prediction | None = None

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": VERSION,
            "settings": trees.dump(self.settings),
            "job": trees.dump(self.job),
            "profile": dump_profile(self.profile),
            "prediction": None if self.prediction is None else trees.dump(self.prediction),
        }

    def text(self) -> str:
        """What a plan's file holds."""
        return json.dumps(self.dump(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def load(cls, tree: Any, place: str = "plan") -> Self:
        """From what `dump` gave, or a person wrote. place: what it is, in errors.

        Raises RequestError, which names the place, for what is missing, not known, or of a wrong
        kind or sign. Names of settings are checked where they are used.
        """
        needed = _KEYS - {"prediction"}
        whole = trees.keys(tree, place, needed=needed, known=_KEYS)
        if whole["version"] != VERSION:
            raise RequestError(
                f"{place} is of version {whole['version']!r}, and this dayfly reads {VERSION}: "
                "make it anew with dayfly predict"
            )
        settings = whole["settings"]
        if not isinstance(settings, Mapping):
            raise RequestError(f"{place}: settings is no object: give those of dayfly train")
        predicted = whole.get("prediction")
        return cls(
            settings=dict(settings),
            job=_job(whole["job"], f"{place}: job"),
            profile=load_profile(whole["profile"], f"{place}: profile"),
            prediction=None
            if predicted is None
            else trees.load(Prediction, predicted, f"{place}: prediction"),
        )

    @classmethod
    def parse(cls, text: str | bytes, place: str = "plan") -> Self:
        """From a file's text. Raises RequestError as `load` does, and for what is no JSON."""
        return cls.load(trees.parse(text, place), place)


def _job(tree: Any, place: str) -> dict[str, Any]:
    given = dict(trees.keys(tree, place, needed={"batch_size", "epochs"}, known=_OF_THE_JOB))
    if not isinstance(given.get("clips", False), bool):
        raise RequestError(f"{place}.clips is {given['clips']!r}: give true or false")
    for name in given.keys() - {"clips"}:
        trees.whole(given[name], f"{place}.{name}", least=1)
    return given
