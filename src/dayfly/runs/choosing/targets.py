"""Targets of a job: a platform, a store, and the job's profile there.

JOB.py         its layers and FLOPs, found once; each platform over each store from their rows
profile.json   its own target; with rows of the catalogue other stores as well, and by the FLOPs
               that it has other platforms, made as of a job

A platform with GPUs is a platform as others are: its profile has their shares as sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from dayfly.catalogue.gpu import GpuRequest
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.life.platforms.base import PLATFORMS
from dayfly.planning.catalogued import Assumed, JobFacts, facts_of, over_store, profile_of
from dayfly.planning.function_kinds import memory_label
from dayfly.planning.gpus import CUDA_HOST_MIB
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import channel_of
from dayfly.planning.servers import choices, held_bytes
from dayfly.runs.choosing.places import (
    check_reach,
    derived,
    facts_of_store,
    is_pattern,
    lent,
    needs,
    places_of,
    start_lent,
    usual_sizes,
)
from dayfly.runs.choosing.query import MOST_WORKERS

if TYPE_CHECKING:
    from dayfly.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A platform and a store on which the job may run.

    Attributes:
        profile: of the job there.
        platform: whose limits and prices count.
        store: whose prices messages have; None: they cost nothing, as no price is known.
        own: directory of the user's catalogue.
        notes: what a person should know, a sentence each.
        group: pattern of server types of which it is one choice; empty: it was named.
        derived: names of its figures that were computed from published ones, or taken over from
            another platform.
    """

    profile: Profile
    platform: FunctionPlatform
    store: StoreFacts | None
    own: str | None = None
    notes: tuple[str, ...] = ()
    group: str = ""
    derived: tuple[str, ...] = ()

    @property
    def sure(self) -> str:
        """How sure its figures are: `measured`, `derived` or `published`."""
        if self.profile.how == "measured":
            return "measured"
        return "derived" if self.derived else "published"

    def needs(self, workers: int) -> str:
        """What it would take to run so many workers there, in words."""
        brought = self.platform.name in PLATFORMS
        return needs(self.platform, self.profile.channel, workers, brought=brought)

    @property
    def sums(self) -> bool:
        """Whether its store is a parameter server."""
        return channel_of(self.profile.channel).abilities.sums

    def __str__(self) -> str:
        return f"{self.platform.name} over {self.profile.channel}"

    @classmethod
    def of(cls, profile: Profile, known: Catalogue, prices: str | None = None) -> Target:
        """Where a profile was made for.

        Args:
            prices: in place of its platform's.

        Raises:
            RequestError: for a platform without prices.
        """
        platform = known.platform(prices or profile.imitate or "aws-lambda")
        if platform.prices is None:
            raise RequestError(
                f"the catalogue has no prices of {platform.name}: add them to a catalogue of your "
                "own, or name another platform"
            )
        store = known.store(profile.channel) if known.has_store(profile.channel) else None
        if store is not None and not store.priced:
            store = None
        return cls(
            profile=profile,
            platform=platform,
            store=store,
            own=None if known.own is None else str(known.own),
        )

    def of_sizes(self, memory_mib: tuple[int, ...]) -> Target:
        """With these memory sizes alone; none: all. Raises RequestError for one that it lacks."""
        if not memory_mib:
            return self
        for one in memory_mib:
            self.profile.size(one)
        sizes = tuple(one for one in self.profile.sizes if one.memory_mib in memory_mib)
        return replace(self, profile=replace(self.profile, sizes=sizes))

    @property
    def sizes(self) -> str:
        """Its memory sizes, in words."""
        return ", ".join(memory_label(one.memory_mib) for one in self.profile.sizes)


#: Of these there may be one a store; of the others one a platform.
_OF_STORES = ("latency_s",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQuery:
    """What targets are asked for.

    Args:
        known: the catalogue.
        platforms: names; empty: those that profiles have, or all that have the GPU.
        stores: names; empty: a platform's usual ones, or a profile's own. A pattern such as `vm-*`
            stands for all types and numbers of servers that may be worth their price.
        memory_mib: of functions; empty: usual sizes of each platform.
        most_workers: functions at once, which servers have to serve.
        assumed: values of `Assumed` by its names, one for all, or one a platform (of latency_s one
            a store).
        gpu: that functions are to have; without platforms, those that have it.
        everywhere: in place of platforms all of the catalogue, with what no row says lent by others
            (`places.lent`).
    """

    known: Catalogue
    platforms: Sequence[str] = ()
    stores: Sequence[str] = ()
    memory_mib: Sequence[int] = ()
    most_workers: int = MOST_WORKERS
    assumed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    gpu: GpuRequest | None = None
    everywhere: bool = False

    def places(self) -> list[tuple[FunctionPlatform, str]]:
        """Returns the platforms and stores, as of `places_of`."""
        return places_of(
            self.platforms, self.stores, self.gpu, self.known, everywhere=self.everywhere
        )


def targets_of_job(job: Job, name: str, asked: TargetQuery) -> tuple[Target, ...]:
    """Returns each platform over each store; without stores, over those of its own provider.

    A cold start that no row says is that of a place like it, and is a note.

    Args:
        job: of the user.
        name: the job's.
        asked: what is looked at.

    Raises:
        RequestError: for what is not known, and what else no row says.
    """
    places = asked.places()
    if not places:
        raise RequestError("no platform to plan for: name some with --platform, as aws-lambda")
    for platform, store in places:
        check_reach(platform, store)
    # What looks at jobs takes long to import, and profiles do without.
    from dayfly.runs.profiling.from_catalogue import base_mib, job_facts

    facts = job_facts(job, name)
    given = {"base_mib": (), **asked.assumed}
    given["base_mib"] = given["base_mib"] or (base_mib(),)
    return _Made(facts, replace(asked, assumed=given)).all(places)


@dataclass(frozen=True, slots=True)
class _Made:
    """Targets that are made of a job's facts and rows of the catalogue."""

    facts: JobFacts
    asked: TargetQuery

    def all(self, places: Sequence[tuple[FunctionPlatform, str]]) -> tuple[Target, ...]:
        """Of these places; of those that nobody named, the ones of which enough is known."""
        asked = self.asked
        made: list[Target] = []
        left_out: list[str] = []
        names = list(dict.fromkeys(platform.name for platform, _ in places))
        for platform, store in places:
            said = {}
            for what, values in asked.assumed.items():
                among = list(asked.stores if what in _OF_STORES else asked.platforms or names)
                of = store if what in _OF_STORES else platform.name
                said[what] = _one_of(what, values, among, of)
            try:
                made += self._of(platform, store, said)
            except RequestError as refusal:
                if asked.platforms:
                    raise
                left_out.append(_left_out(platform.name, refusal))
        if not made:
            raise RequestError("; ".join(left_out))
        if asked.everywhere:
            left_out = list(dict.fromkeys(left_out))
        return (replace(made[0], notes=(*made[0].notes, *left_out)), *made[1:])

    def _of(self, platform: FunctionPlatform, store: str, said: dict[str, Any]) -> list[Target]:
        asked, notes = self.asked, []
        words = derived(platform, asked.known)
        share = None if asked.gpu is None else asked.gpu.share
        if asked.everywhere:
            one = StoreFacts(name=store, latency_s=0.0)  # types of servers have latencies
            if not is_pattern(store):
                one = facts_of_store(platform, store, asked.known)
            values, more = lent(platform, one, asked.known)
            said, words = {**values, **said}, (*words, *more)
        if "cold_start_s" not in said:
            start, word = start_lent(platform, asked.known)
            said, words = {**start, **said}, (*words, *filter(None, [word]))
            if word and not asked.everywhere:
                notes.append(f"{platform.name} has {word}: say another with --cold-start")
        over = partial(
            profile_of,
            self.facts,
            platform,
            memory_mib=asked.memory_mib or usual_sizes(platform, share),
            assumed=Assumed(**said),
            every_kind=True,
            gpu_share=share,
        )
        found = _over_each(over, platform, store, asked.most_workers, asked.known)
        return [replace(target, notes=tuple(notes), derived=words) for target in found]


def _left_out(name: str, refusal: RequestError) -> str:
    """Returns why a platform that nobody named is left out; it is named once."""
    said = str(refusal)
    return f"{name} is left out: " + (
        "it" + said.removeprefix(name) if said.startswith(f"{name} ") else said
    )


def targets_of_profiles(profiles: Sequence[Profile], asked: TargetQuery) -> tuple[Target, ...]:
    """Returns each profile as it is, or over other stores, if it was made from the catalogue.

    Of a platform that no profile is of one is made from the FLOPs of the first, as of a job.

    Args:
        profiles: of one job.
        asked: what is looked at; where a profile is of a place, the profile counts.

    Raises:
        RequestError: for a profile without FLOPs on another platform, for profiles of different
            jobs, for a measured one over another store, and for `assumed` where nothing is made.
    """
    platforms, known = asked.platforms, asked.known
    if len({profile.job for profile in profiles}) > 1:
        jobs = ", ".join(dict.fromkeys(profile.job for profile in profiles))
        raise RequestError(f"the profiles are of different jobs, {jobs}: plan one at a time")
    of = [_of_gpu(Target.of(profile, known), asked.gpu) for profile in profiles]
    kept = [one for one in of if one and (not platforms or one.platform.name in platforms)]
    names = [target.platform.name for target in kept]
    missing = [name for name in platforms if name not in names]
    twice = [str(target) for target in kept if list(map(str, kept)).count(str(target)) > 1]
    if twice:
        raise RequestError(f"two profiles are of {twice[0]}: give one of them")
    made: list[Target] = []
    for target in kept:
        for store in dict.fromkeys(asked.stores or (target.profile.channel,)):
            if store == target.profile.channel:
                made.append(target)
                continue
            check_reach(target.platform, store)
            over = partial(over_store, target.profile, target.platform)
            made += _over_each(over, target.platform, store, asked.most_workers, known)
    if missing or not kept or asked.everywhere:
        others = _made_of(profiles[0], replace(asked, platforms=missing))
        mine = set(map(str, made))
        made += [one for one in others if str(one) not in mine]
    elif asked.assumed:
        raise RequestError(
            f"{', '.join(asked.assumed)} is said in place of the catalogue's rows, and these "
            "profiles have their seconds already: name another --platform, or leave it out"
        )
    return tuple(made)


def _made_of(profile: Profile, asked: TargetQuery) -> tuple[Target, ...]:
    """Other platforms, by the FLOPs of a profile."""
    platforms, places = asked.platforms, asked.places()
    if not profile.flops:
        of = platforms[0] if platforms else places[0][0].name
        raise RequestError(
            f"--platform {of}: the profile of {profile.job} is of {profile.imitate or 'local'} and "
            f"has no FLOPs to make others of: profile it anew, give a profile of {of} as well, or "
            "the job"
        )
    for platform, store in places:
        check_reach(platform, store)
    base_mib = profile.sizes[0].base_mib.value - (CUDA_HOST_MIB if profile.gpu else 0.0)
    given = {"base_mib": (max(0.0, base_mib),), **asked.assumed}
    return _Made(facts_of(profile), replace(asked, assumed=given)).all(places)


def _of_gpu(target: Target, gpu: GpuRequest | None) -> Target | None:
    """The target with the share asked for alone; None: it has another GPU, or none."""
    has = target.profile.gpu
    if gpu is None:
        return target
    if has is None or has.type != gpu.type:
        return None
    sizes = [one for one in target.profile.sizes if gpu.share in (None, one.gpu_share)]
    if not sizes:
        raise RequestError(
            f"--gpu {gpu.type}:{gpu.share:g}: the profile of {target.profile.job} has no functions "
            "with this share: leave the share out, or profile it"
        )
    return replace(target, profile=replace(target.profile, sizes=tuple(sizes)))


def _over_each(
    over: Callable[[StoreFacts], Profile],
    platform: FunctionPlatform,
    store: str,
    most_workers: int,
    known: Catalogue,
) -> list[Target]:
    """Over a store, or over each choice of servers of the types that a pattern names.

    over: makes the profile, of functions of the platform. Raises RequestError for a pattern that
    names no type.
    """
    if not is_pattern(store):
        return [Target.of(over(facts_of_store(platform, store, known)), known)]
    types = [known.store(name) for name in known.stores() if fnmatchcase(name, store)]
    types = [one for one in types if one.rented]
    if not types:
        raise RequestError(
            f"--price-store {store}: no type of servers is named so: see dayfly catalogue"
        )
    # Servers in any number, as far as the functions' own links go.
    free = over(replace(types[0], bytes_per_s=None))
    rate = max(way.peak_bytes_per_s.value for size in free.sizes for way in (size.up, size.down))
    found = choices(types, most_workers * rate, held_bytes(free, most_workers))
    return [replace(Target.of(over(one), known), group=store) for one in found]


def _one_of(what: str, values: Sequence[Any], among: Sequence[str], name: str) -> Any:
    if len(values) == 1:
        return values[0]
    if len(values) != len(among):
        raise RequestError(
            f"{len(values)} values of {what} for {len(among)} "
            f"{'stores' if what in _OF_STORES else 'platforms'}: give one for all, or one each"
        )
    return values[list(among).index(name)]
