"""The bill: what each invocation took and what went through the store, under price lists.

             billed time                          requests        store
    |init|------- run -------|~ rounding ~|       of functions    puts, gets, bytes, storage
    '----'-------------------'------------'
    initialisation    compute

Initialisation is billed like the rest of an invocation's time, and shown apart; what rounding and
a minimum add belongs to compute. Measuring the job for the plan of a run is a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, TypeVar

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.prices import FunctionPrices
from dayfly.catalogue.store import StoreFacts
from dayfly.dataclass_json import Matches
from dayfly.errors import RequestError

T = TypeVar("T")
#: Kind of dollars of a bill: measuring the job for this run.
PROFILING = "profiling"
#: Of a run: its functions are its workers, under two names by turns.
FunctionName = Annotated[
    str, Matches(r"(worker|successor)-[0-9]{1,9}", "a function such as worker-0")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionUse:
    """What an invocation of any function used.

    Attributes:
        memory_mib: its limit; None: it had none, and is billed for the memory of one vCPU.
        init_s: time of initialisation, which is billed.
        run_s: time of running, which is billed.
        vcpus: None: those that the platform gives with the memory.
        gpu_share: share of a GPU; None: it had none.
        price_list: under whose prices it ran; None: it was not noted, and is the bill's.
    """

    memory_mib: int | None
    init_s: float
    run_s: float
    vcpus: float | None = None
    gpu_share: float | None = None
    price_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredInvocation(FunctionUse):
    """One invocation of a run's function, as metered.

    Attributes:
        function: whose.
        attempt: which of the function's invocations.
        outcome: how it ended.
    """

    function: FunctionName
    attempt: int
    outcome: str


_OF_USED = tuple(one.name for one in fields(MeteredInvocation))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraffic:
    """The traffic of one function with the store, over all its invocations.

    Attributes:
        puts: requests that store something.
        gets: requests that read something.
        requests: puts, gets, and questions whether something is there, which are billed as gets.
        bytes_up: put into the store.
        bytes_down: got out of it.
    """

    puts: int = 0
    gets: int = 0
    requests: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


_OF_MOVED = tuple(one.name for one in fields(StoreTraffic))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a run cost under a price list, in USD, and for what.

    Attributes:
        store: whose prices the store's part has; None: a store that costs nothing.
        requests: invocations of functions.
        compute_usd: all billed time, initialisation included.
        requests_usd: price of the invocations.
        by_kind: dollars that add up to the cost.
        profiling_s: billed seconds of the functions that measured the job for this run, in none of
            the other figures but by_kind and the cost; 0: its profile was at hand; None: its plan
            was not chosen by the run itself.
        functions: a row for each function.
        invocations: a row for each invocation.
        coordinator_usd: what the coordinator would have cost as one more function. It ran
            elsewhere, so it is no part of the cost.
        overridden: rows of the catalogue that were the user's own.
        notes: what the price list's platform would not have done.
    """

    price_list: str
    store: str | None
    billed_s: float
    init_s: float
    gb_s: float
    vcpu_s: float
    requests: int
    compute_usd: float
    requests_usd: float
    by_kind: Mapping[str, float]
    functions: tuple[dict[str, Any], ...]
    invocations: tuple[dict[str, Any], ...]
    profiling_s: float | None = None
    coordinator_usd: float = 0.0
    overridden: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def cost_usd(self) -> float:
        """The sum."""
        return sum(self.by_kind.values())

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {"cost_usd": self.cost_usd, **asdict(self)}


def bill(
    used: Sequence[MeteredInvocation],
    platform: FunctionPlatform,
    store: StoreFacts | None = None,
    moved: Mapping[str, StoreTraffic] | None = None,
    stored_bytes: int = 0,
    coordinator: Sequence[MeteredInvocation] = (),
    lists: Callable[[str], FunctionPlatform] | None = None,
    profiling: Sequence[FunctionUse] | None = None,
) -> Bill:
    """Bills invocations, and the traffic of functions with the store.

    Args:
        used: the invocations.
        platform: the price list, of what names none and of the coordinator.
        store: the store's prices; None: it costs nothing.
        moved: traffic by function.
        coordinator: its lives, as if they were functions.
        profiling: what measured the job for this run, in its own sizes; None: the bill has no such
            line.
        stored_bytes: the most that the store held. The store and its servers are billed as long as
            the function that ran longest.
        lists: price lists by name, of invocations that name theirs; None: one counts for all.

    Raises:
        RequestError: the catalogue has no prices for this.
    """
    if store is not None:
        store.check_priced()
    if lists is None:
        used = [one if one.price_list is None else replace(one, price_list=None) for one in used]
    uses = (*used, *(profiling or ()))
    named = dict.fromkeys(one.price_list for one in uses if one.price_list is not None)
    by_name = {name: lists(name) for name in named if lists is not None}
    priced_as = [by_name.get(one.price_list or "", platform) for one in used]
    of_lists = {one.name: one for one in priced_as or [platform]}
    priced = list(zip(used, priced_as, strict=True))
    invocations = [
        _row(one, billed) for one, billed in zip(used, _of_each(_billed, priced), strict=True)
    ]
    traffic = moved or {}
    names = sorted({_worker_of(one.function) for one in used} | traffic.keys(), key=_in_order)
    of_function: dict[str, list[dict[str, Any]]] = {}
    for row in invocations:
        of_function.setdefault(_worker_of(row["function"]), []).append(row)
    functions = [
        _function(
            name,
            of_function.get(name, ()),
            traffic.get(name, StoreTraffic()),
            store,
        )
        for name in names
    ]
    longest_s = max((row["billed_ms"] / 1000 for row in functions), default=0.0)
    compute_usd = sum(row["compute_usd"] for row in invocations)
    init_usd = sum(row["init_usd"] for row in invocations)
    requests_usd = sum(_prices(one).usd_per_request for one in priced_as)
    by_kind = {
        "compute": compute_usd - init_usd,
        "initialisation": init_usd,
        "invocation_requests": requests_usd,
        "store_requests": sum(row["store_requests_usd"] for row in functions),
        "store_transfer": sum(row["store_transfer_usd"] for row in functions),
        "store_storage": store.storage_usd(stored_bytes, longest_s) if store else 0.0,
        "store_servers": store.servers_usd(longest_s) if store else 0.0,
    }
    measuring = [
        _billed(one, by_name.get(one.price_list or "", platform)) for one in profiling or ()
    ]
    if profiling is not None:
        by_kind[PROFILING] = sum(one["cost_usd"] for one in measuring)
    return Bill(
        price_list=" and ".join(of_lists),
        store=store.name if store else None,
        billed_s=sum(row["billed_ms"] for row in invocations) / 1000,
        init_s=sum(row["init_ms"] for row in invocations) / 1000,
        gb_s=sum(row["gb_s"] for row in invocations),
        vcpu_s=sum(row["vcpu_s"] for row in invocations),
        requests=len(invocations),
        compute_usd=compute_usd,
        requests_usd=requests_usd,
        by_kind=by_kind,
        functions=tuple(functions),
        invocations=tuple(invocations),
        profiling_s=None
        if profiling is None
        else sum(one["billed_ms"] for one in measuring) / 1000,
        coordinator_usd=sum(_billed(one, platform)["compute_usd"] for one in coordinator),
        overridden=_overridden(of_lists.values(), store),
        notes=_notes(priced, store, traffic),
    )


def with_vcpus(used: Sequence[MeteredInvocation], vcpus: float | None) -> list[MeteredInvocation]:
    """Returns invocations whose functions were asked for with so many vCPUs; None: as they are.

    Those that name their price list were metered with what they were asked for with.
    """
    known = [vcpus is None or one.price_list is not None for one in used]
    return [
        one if is_known else replace(one, vcpus=vcpus)
        for one, is_known in zip(used, known, strict=True)
    ]


def _prices(platform: FunctionPlatform) -> FunctionPrices:
    """Raises RequestError if it has none."""
    if platform.prices is None:
        raise RequestError(f"the catalogue has no prices of {platform.name}: name another list")
    return platform.prices


def _of_each(
    find: Callable[[FunctionUse, FunctionPlatform], T],
    priced: Iterable[tuple[MeteredInvocation, FunctionPlatform]],
) -> list[T]:
    """Returns what is found of each invocation; it is asked once of those that used the same."""
    known: dict[tuple[object, ...], T] = {}
    found = []
    for one, platform in priced:
        key = one.memory_mib, one.vcpus, one.gpu_share, one.init_s, one.run_s, platform.name
        if key not in known:
            known[key] = find(one, platform)
        found.append(known[key])
    return found


def _row(used: MeteredInvocation, billed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of the bill: what an invocation used, and what is billed for it."""
    return {**{name: getattr(used, name) for name in _OF_USED}, **billed}


def _billed(used: FunctionUse, platform: FunctionPlatform) -> dict[str, Any]:
    prices = _prices(platform)
    memory_mib, vcpus = platform.billed_size(used.memory_mib, used.vcpus)
    billed_ms = prices.billed_ms(used.init_s + used.run_s)
    init_ms = min(round(used.init_s * 1000, 3), billed_ms)
    gpu_share = platform.next_gpu_share(used.gpu_share)
    usd_for_1_s = prices.usd_for_1_s(memory_mib, vcpus, gpu_share)
    compute_usd = billed_ms / 1000 * usd_for_1_s
    return {
        "memory_mib": memory_mib,
        "vcpus": vcpus,
        "price_list": platform.name,
        "billed_ms": billed_ms,
        "init_ms": init_ms,
        "gb_s": billed_ms / 1000 * memory_mib / 1024,
        "vcpu_s": billed_ms / 1000 * vcpus,
        "compute_usd": compute_usd,
        "init_usd": init_ms / 1000 * usd_for_1_s,
        "cost_usd": compute_usd + prices.usd_per_request,
    }


def _function(
    name: str, rows: Sequence[Mapping[str, Any]], moved: StoreTraffic, store: StoreFacts | None
) -> dict[str, Any]:
    """A row: all invocations of one function, and what it moved."""
    asked = moved.requests - moved.puts
    requests_usd = transfer_usd = 0.0
    if store is not None:
        requests_usd = store.puts_usd(moved.puts, moved.bytes_up)
        requests_usd += store.gets_usd(asked, moved.bytes_down)
        transfer_usd = store.transfer_usd(moved.bytes_up, moved.bytes_down)
    sums = {
        key: sum(row[key] for row in rows) for key in ("billed_ms", "init_ms", "gb_s", "vcpu_s")
    }
    return {
        "function": name,
        "invocations": len(rows),
        **sums,
        **{name: getattr(moved, name) for name in _OF_MOVED},
        "store_requests_usd": requests_usd,
        "store_transfer_usd": transfer_usd,
        "cost_usd": sum(row["cost_usd"] for row in rows) + requests_usd + transfer_usd,
    }


def _worker_of(function: str) -> str:
    """The bill's row of a function: `successor-3` belongs to `worker-3`, as it takes its place."""
    return re.sub(r"^successor-", "worker-", function)


def _in_order(function: str) -> tuple[str, int]:
    """worker-2 comes before worker-10."""
    word, _, number = function.rpartition("-")
    return (word, int(number)) if number.isdecimal() else (function, 0)


def _overridden(platforms: Iterable[FunctionPlatform], store: StoreFacts | None) -> tuple[str, ...]:
    entries: list[FunctionPlatform | StoreFacts] = [*platforms]
    if store is not None:
        entries.append(store)
    return tuple(f"{entry.name}: {key}" for entry in entries for key in entry.overridden)


def _notes(
    priced: Sequence[tuple[MeteredInvocation, FunctionPlatform]],
    store: StoreFacts | None,
    moved: Mapping[str, StoreTraffic],
) -> tuple[str, ...]:
    """What was metered and could not have been there: priced all the same, and said."""
    found = {
        f"{one.function}: {refusal}": None
        for (one, _), refusals in zip(priced, _of_each(_refusals, priced), strict=True)
        for refusal in refusals
    }
    if store is None and any(one.requests for one in moved.values()):
        found["what went through the store is counted, and costs nothing: name a store"] = None
    return tuple(found)


def _refusals(used: FunctionUse, platform: FunctionPlatform) -> list[str]:
    """Why the platform would not have had such a function."""
    memory_mib = None if used.memory_mib is None else platform.next_size_mib(used.memory_mib)
    found: dict[str, None] = {}
    for check in (
        partial(platform.check, memory_mib=memory_mib),
        partial(platform.check, lifetime_s=used.init_s + used.run_s),
        partial(platform.check, vcpus=used.vcpus),
        partial(platform.check, memory_mib=memory_mib, gpu_share=used.gpu_share),
        partial(platform.check, vcpus=used.vcpus, gpu_share=used.gpu_share),
    ):
        try:
            check()
        except RequestError as refusal:
            found[str(refusal)] = None
    return list(found)
