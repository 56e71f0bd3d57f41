"""Messages beside what a store's plain client does with values as large: a put and a get each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.parts.cpu_clocks import cpu_s, others
from benchmarks.parts.spread import say, spread
from benchmarks.parts.stores import Store
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, as_bytes

Json = dict[str, Any]

#: Payloads, in bytes.
_SIZES = (64 * 1024, 2**20, 16 * 2**20)
#: What a figure is measured over: so many bytes, in so many messages at most.
_BYTES, _MESSAGES, _QUICK_MESSAGES = 64 * 2**20, 100, 2
_KEY = Key(0, "message", 0, 1)
_ARRIVES_S = 60.0
#: What puts and gets a value, and what removes it.
PutGet = tuple[Callable[[], object], Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Client:
    """A client by itself. opened: what puts, gets and removes a value, given the store's URL."""

    name: str
    opened: Callable[[str, memoryview], AbstractContextManager[PutGet]]


@contextmanager
def _redis_py(url: str, value: memoryview) -> Iterator[PutGet]:
    import redis

    with redis.Redis.from_url(url) as client:

        def moved() -> None:
            client.set("bench-plain", value)
            client.get("bench-plain")

        yield moved, lambda: client.delete("bench-plain")


@contextmanager
def _obstore(url: str, value: memoryview) -> Iterator[PutGet]:
    import obstore
    from obstore.store import from_url

    # Endpoint and credentials come from the environment, as those of dayfly's channel do.
    store = from_url(url, client_options={"allow_http": True})

    def moved() -> None:
        obstore.put(store, "bench-plain", value, use_multipart=False)
        obstore.get(store, "bench-plain").bytes()

    yield moved, lambda: obstore.delete(store, "bench-plain")


#: By the name of a store.
CLIENTS: Mapping[str, Client] = {
    "redis": Client("redis-py", _redis_py),
    "s3": Client("obstore", _obstore),
}


def measure(store: Store, client: Client, rounds: int, quick: bool) -> list[Json]:
    """Returns a row a size: CPU seconds of a put and a get, of this process and of all others."""
    place = store.place()
    site, kind = place.site(), channel_kind(place.url)
    plan = ChannelSpec(senders=2, budget_bytes=2**28, ahead_bytes=2**20)
    with kind.create(site, plan) as made, kind.open(site, 0) as channel:
        try:
            return [_size(channel, place.url, client, size, rounds, quick) for size in _SIZES]
        finally:
            made.destroy()


def _size(channel: Channel, url: str, client: Client, size: int, rounds: int, quick: bool) -> Json:
    tensor = torch.arange(size, dtype=torch.uint8)
    value, into = as_bytes(tensor), torch.empty_like(tensor)
    header = Header(_KEY.operation, torch.uint8, (size,))

    def moved() -> None:
        channel.put(_KEY, header, value)
        channel.get(_KEY, into, _ARRIVES_S)

    times = _QUICK_MESSAGES if quick else max(3, min(_MESSAGES, _BYTES // size))
    with client.opened(url, value) as plain:
        return _row(size, (moved, lambda: channel.drop([_KEY])), plain, client.name, rounds, times)


def _row(size: int, ours: PutGet, plain: PutGet, name: str, rounds: int, times: int) -> Json:
    took: dict[PutGet, list[tuple[float, float]]] = {ours: [], plain: []}
    for one in range(-1, rounds):
        for side in (ours, plain) if one % 2 else (plain, ours):
            measured = _cpu_s(times, *side)
            if one >= 0:  # connections and threads are there after the first
                took[side].append(measured)
    mine, its = ([own_s for own_s, _ in took[side]] for side in (ours, plain))
    say(
        f"  {size} bytes put and got: {1e3 * median(mine):.3f} ms of CPU time, {name} "
        f"{1e3 * median(its):.3f}"
    )
    return {
        "client": name,
        "bytes": size,
        "messages": times,
        "cpu_seconds": mine,
        "client_cpu_seconds": its,
        "cpu_took_s": median(mine),
        "client_cpu_s": median(its),
        "store_cpu_seconds": [rest_s for _, rest_s in took[ours]],
        **spread("cpu_ratio", [a / b for a, b in zip(mine, its, strict=True)]),
    }


def _cpu_s(
    times: int, moved: Callable[[], object], removed: Callable[[], object]
) -> tuple[float, float]:
    """CPU seconds of one of `times` puts and gets: of this process, and of those it started."""
    here = [os.getpid()]
    rest = others(())[1:]
    own_s = rest_s = 0.0
    for _ in range(times):
        own_s -= cpu_s(here)
        rest_s -= cpu_s(rest)
        moved()
        own_s += cpu_s(here)
        rest_s += cpu_s(rest)
        removed()
    return own_s / times, rest_s / times
