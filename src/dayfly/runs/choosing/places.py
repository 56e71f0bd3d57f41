"""Places of the catalogue: platforms with the stores of their providers, and what each is like.

What no row says of a place is lent by a place like it where all places are compared:

    vcpu_flops_per_s     aws-lambda, of which alone a source tells it
    uplink, downlink     vm-m5-large to machines, the slowest of their networks that has rows;
                         aws-lambda to functions and containers
    latency_s            vm-m5-large to links between workers, s3 to stores

How long a place takes to start is lent always, unless somebody says it:

    cold_start_s         vm-c5-xlarge to machines, and to Fargate, each task of which has a machine
                         of its own; cloud-run-l4 to other containers, and to functions with GPUs;
                         aws-lambda to functions

Whatever is lent, or derived, is said with each plan of the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dayfly.catalogue.gpu import GpuRequest
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError

#: Links between workers, in place of a store.
DIRECT = "tcp://"
#: The store of a platform's own provider, or links, by how the platform's name begins.
_OWN_STORES = {
    "aws-": "s3",
    "fargate": "s3",
    "alibaba-": "alibaba-oss",
    "azure-containers-": DIRECT,
    "azure-": "azure-storage",
    "cloud-run": "gcs",
    "vm-": DIRECT,
}
#: Types of servers that are looked at beside that store.
_OWN_SERVERS = {"s3": "vm-*"}
#: MiB of functions that are looked at unless others are named, as far as a platform has them.
_SIZES = (512, 1024, 2048, 3072, 4096, 6144, 8192, 10240, 16384, 32768)
_MACHINE = "vm-"
_LENDING_FUNCTIONS, _LENDING_MACHINES, _LENDING_STORES = "aws-lambda", "vm-m5-large", "s3"
_STARTING_MACHINE, _STARTING_CONTAINER = "vm-c5-xlarge", "cloud-run-l4"
#: Containers that start with a machine of their own.
_ON_MACHINES = "fargate"
#: Rows that may be derived, in words.
_MAY_BE_DERIVED = {"vcpu_flops_per_s": "FLOP/s of a vCPU", "cold_start_s": "its start"}
#: How sources begin that were not measured or published for the row itself.
_DERIVED = "derived"


def is_machine(platform: FunctionPlatform) -> bool:
    """Returns whether it is rented whole, and one has to start dayfly on it."""
    return platform.machine_vcpus is not None


def is_pattern(store: str) -> bool:
    """Whether it stands for several types of servers."""
    return "*" in store


def usual_sizes(platform: FunctionPlatform, gpu_share: float | None = None) -> tuple[int, ...]:
    """Memory sizes to look at, with this share of a GPU; a machine has one."""
    if is_machine(platform) and platform.memory_max_mib is not None:
        return (platform.memory_max_mib,)
    least, most = platform.memory_min_mib or 1, platform.memory_max_mib
    if most is None:
        most = int(max((mib for _, mib in platform.memory_max_by_vcpus or ()), default=_SIZES[-1]))
    most = int(min(most, platform.most_mib_beside_gpu(gpu_share)))
    found = {platform.next_size_mib(size) for size in _SIZES if least <= size <= most}
    return tuple(sorted(found | {most} if most < _SIZES[-1] else found))


def own_stores(platform: FunctionPlatform, *, lenient: bool) -> list[str]:
    """Returns those of its provider.

    Args:
        platform: of the catalogue.
        lenient: none for a platform that has none, where others may do.

    Raises:
        RequestError: it has none.
    """
    for beginning, store in _OWN_STORES.items():
        if platform.name.startswith(beginning):
            return [store, *([_OWN_SERVERS[store]] if store in _OWN_SERVERS else [])]
    if lenient:
        return []
    raise RequestError(
        f"--platform {platform.name} has no usual store: name one with --price-store"
    )


def check_reach(platform: FunctionPlatform, store: str) -> None:
    """Functions that are invoked with a payload cannot be connected to; containers can.

    Raises RequestError for links between such functions.
    """
    if store.startswith(DIRECT) and platform.payload_sync_bytes is not None:
        raise RequestError(
            f"--price-store {DIRECT}: functions of {platform.name} cannot open connections to each "
            "other: name a store, or a platform of containers, as fargate"
        )


def facts_of_store(platform: FunctionPlatform, store: str, known: Catalogue) -> StoreFacts:
    """Returns the facts of a store, or of links between a platform's workers."""
    if store.startswith(DIRECT):
        return StoreFacts(name=DIRECT, latency_s=platform.latency_s)
    return known.store(store)


def every_platform(known: Catalogue) -> list[str]:
    """Returns all platforms that have prices, machines as spot machines, too."""
    names = [*known.platforms(), *known.spot_machines()]
    return [name for name in names if known.platform(name).prices is not None]


def places_of(
    platforms: Sequence[str],
    stores: Sequence[str],
    gpu: GpuRequest | None,
    known: Catalogue,
    *,
    everywhere: bool = False,
) -> list[tuple[FunctionPlatform, str]]:
    """Returns each platform with each store.

    Args:
        platforms: names; none: those that have the GPU.
        stores: names; none: those of each platform's provider.
        gpu: that functions are to have.
        known: the catalogue.
        everywhere: all platforms that have prices, in place of names.

    Raises:
        RequestError: a platform without the GPU asked for, or without a usual store.
    """
    names = every_platform(known) if everywhere else list(dict.fromkeys(platforms))
    if gpu is not None:
        having = known.with_gpu(gpu.type)
        for name in names:
            if name not in having:
                has = known.platform(name).gpu
                raise RequestError(
                    f"--gpu {gpu.type}: functions of {name} have {'no GPU' if has is None else has}"
                    f": name one of {', '.join(having)}, or leave it out"
                )
        names = names or having
    own: Callable[[FunctionPlatform], list[str]] = partial(own_stores, lenient=not platforms)
    return [
        (platform, store)
        for platform in map(known.platform, names)
        for store in (dict.fromkeys(stores) or own(platform))
    ]


def start_lent(platform: FunctionPlatform, known: Catalogue) -> tuple[dict[str, Any], str]:
    """Returns how long a start takes at a place like it as a value of `Assumed`, and in words.

    Args:
        platform: of the place; if its own row says it, there is no value and no word.
        known: the catalogue.
    """
    if platform.cold_start_s is not None:
        return {}, ""
    if is_machine(platform) or platform.name.startswith(_ON_MACHINES):
        lender = _STARTING_MACHINE
    elif platform.gpu is not None or platform.payload_sync_bytes is None:
        lender = _STARTING_CONTAINER
    else:
        lender = _LENDING_FUNCTIONS
    seconds = known.platform(lender).cold_start_s
    if seconds is None:  # a catalogue of one's own may take the row away
        return {"cold_start_s": 0.0}, "a start that counts only what is read then"
    return {"cold_start_s": seconds}, f"a start of {seconds:g} s, as of {lender}"


def lent(
    platform: FunctionPlatform, store: StoreFacts, known: Catalogue
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns what no row says of a place as values of `Assumed`, and the same in words.

    Args:
        platform: of the place.
        store: what its workers talk through.
        known: the catalogue.
    """
    values: dict[str, Any] = {}
    words: list[str] = []
    size = usual_sizes(platform)[0]
    lender = _LENDING_MACHINES if is_machine(platform) else _LENDING_FUNCTIONS
    lending = known.platform(lender)
    if platform.gpu is None and platform.vcpu_flops_per_s is None:
        values["vcpu_flops_per_s"] = known.platform(_LENDING_FUNCTIONS).vcpu_flops_per_s
        words.append(f"a vCPU as fast as one of {_LENDING_FUNCTIONS}")
    ways = {"up_bytes_per_s": FunctionPlatform.up_bytes_per_s}
    ways["down_bytes_per_s"] = FunctionPlatform.down_bytes_per_s
    missing = [name for name, rate in ways.items() if rate(platform, size) is None]
    if missing:
        values |= {name: ways[name](lending, usual_sizes(lending)[0]) for name in missing}
        words.append(f"bandwidth of {lender}")
    if store.latency_s is None:
        links = store.name == DIRECT
        of = known.platform(_LENDING_MACHINES) if links else known.store(_LENDING_STORES)
        values["latency_s"] = of.latency_s
        words.append(f"latency of {of.name}")
    return values, tuple(words)


def derived(platform: FunctionPlatform, known: Catalogue) -> tuple[str, ...]:
    """Returns which figures of a platform are derived from what is published, in words."""
    rows = known.rows("platforms", platform.name.partition(":")[0])
    said = (
        () if platform.gpu is None else (f"passes by the published figures of the {platform.gpu}",)
    )
    named = ((rows.get(name), words) for name, words in _MAY_BE_DERIVED.items())
    return said + tuple(
        f"{words} {row.source.partition(':')[0]}"
        for row, words in named
        if row is not None and row.source.startswith(_DERIVED)
    )


#: Who rents platforms out, by how their names begin.
_PROVIDERS = {
    "aws-": "AWS",
    "fargate": "AWS",
    "vm-nc": "Azure",
    "vm-": "AWS",
    "azure-": "Azure",
    "alibaba-": "Alibaba Cloud",
    "cloud-run": "Google Cloud",
}
#: Stores as their providers call them.
_STORES = {
    "s3": "a bucket in S3",
    "gcs": "a bucket in Cloud Storage",
    "alibaba-oss": "a bucket in OSS",
    "azure-storage": "a container in Azure Storage",
}


def needs(platform: FunctionPlatform, store: str, workers: int, *, brought: bool) -> str:
    """Returns what it would take to run there, in words.

    Args:
        platform: where.
        store: what the workers talk through.
        workers: how many; a lone one needs no way to others.
        brought: whether a package is installed that starts functions there.
    """
    who = next((of for name, of in _PROVIDERS.items() if platform.name.startswith(name)), None)
    said = [f"an account at {who}" if who else f"an account for {platform.name}"]
    name, _, spot = platform.name.partition(":")
    kind = "spot machine" if spot else "machine"
    if not is_machine(platform):
        said.append("" if brought else f"a package that starts functions on {name} (none is here)")
    elif workers == 1:
        said.append(f"one {kind}, with dayfly and the job on it")
    else:
        said.append(f"{kind}s that reach each other")
        said.append("" if brought else "a package that starts workers on them (none is here)")
    if store.startswith(DIRECT):
        said.append("" if is_machine(platform) or workers == 1 else "containers that reach others")
    elif store.startswith(_MACHINE):
        of_type, _, count = store.partition(":")
        said.append(f"{count or 'one'} {of_type} as parameter server" if workers > 1 else "")
    else:
        said.append(_STORES.get(store, store))
    if platform.spot_interruptions_per_month:
        said.append("run checkpoints, from which it goes on after an interruption")
    return "; ".join(filter(None, said))
