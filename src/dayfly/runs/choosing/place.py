"""Where a job may run: a platform, a store, and the job's profile there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.profile import Profile, in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """profile: of the job there. platform: whose prices. store: whose prices messages have; None:
    they cost nothing, as nobody knows their price. own: the user's catalogue. notes: what a person
    should know, a sentence each."""

    profile: Profile
    platform: FunctionPlatform
    store: StoreFacts | None
    own: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.platform.name} over {self.profile.channel}"

    @classmethod
    def of(cls, profile: Profile, known: Catalogue, prices: str | None = None) -> Place:
        """Where a profile was made for. prices: in place of its platform's.

        Raises RequestError for a platform without prices.
        """
        platform = known.platform(prices or profile.imitate or "aws-lambda")
        if platform.prices is None:
            raise RequestError(
                f"the catalogue has no prices of {platform.name}: add them to a catalogue of your "
                "own, or name another platform"
            )
        store = known.store(profile.channel) if profile.channel in known.stores() else None
        if store is not None and (store.usd_per_put is None or store.usd_per_get is None):
            store = None
        return cls(
            profile=profile,
            platform=platform,
            store=store,
            own=None if known.own is None else str(known.own),
        )

    def of_sizes(self, memory_mib: tuple[int, ...]) -> Place:
        """With these memory sizes alone; none: all. Raises RequestError for one that it lacks."""
        if not memory_mib:
            return self
        sizes = tuple(self.profile.size(one) for one in sorted(set(memory_mib)))
        return replace(self, profile=replace(self.profile, sizes=sizes))

    @property
    def sizes(self) -> str:
        """Its memory sizes, in words."""
        return ", ".join(in_words(one.memory_mib) for one in self.profile.sizes)
