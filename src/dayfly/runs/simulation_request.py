"""What of a plan is to be simulated, and under which scenario."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.configuration import Configuration
from dayfly.planning.plan import Plan
from dayfly.planning.scenario import Scenario
from dayfly.runs.billing import catalogue
from dayfly.runs.planning import Wanted, configuration, settings_of
from dayfly.runs.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be simulated. name: part of the run's id. store: of the catalogue, by name, whose
    cap and prices count; None: the profile's, if its channel names one."""

    plan: Plan
    settings: Settings
    wanted: Wanted
    scenario: Scenario
    name: str
    store: str | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        place: str,
        scenario: Scenario,
        name: str,
        *,
        changes: Mapping[str, Any],
        of_the_job: Mapping[str, Any],
        store: str | None = None,
    ) -> Request:
        """Of a plan, with changes of its settings and of what it says of its job.

        Raises RequestError for what cannot be.
        """
        for asked, value in of_the_job.items():
            if value < 1:
                flag = f"--{asked.replace('_', '-')}"
                raise RequestError(f"{flag} {value}: give a number from 1")
        settings = settings_of(plan, place, **changes)
        wanted = replace(Wanted.by(plan), **of_the_job)
        return cls(
            plan=plan,
            settings=settings,
            wanted=wanted,
            scenario=scenario,
            name=name,
            store=store,
        )

    @property
    def configuration(self) -> Configuration:
        """Of what is simulated."""
        return configuration(self.settings, self.wanted)

    def facts(self) -> StoreFacts | None:
        """Of the store. Raises RequestError if the catalogue does not have it."""
        known = catalogue(self.settings)
        named = self.plan.profile.channel.partition("://")[0]
        name = self.store or (named if named in known.stores() else None)
        return known.store(name) if name is not None else None

    @property
    def run_id(self) -> str:
        """A function of all that is asked for."""
        whole = {
            "plan": self.plan.dump(),
            "settings": asdict(self.settings),
            "wanted": asdict(self.wanted),
            "scenario": asdict(self.scenario),
            "store": self.store,
        }
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        word = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return f"{word[:24].strip('-') or 'plan'}-simulated-{digest[:10]}"
