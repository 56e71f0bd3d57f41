"""Network namespaces as a star: a hub with the store, and a cable to each worker's.

                     +-- to-0 ========= end   dayfly-bench-<pid>-0
    hub  192.0.2.1 --+-- to-1 ========= end   dayfly-bench-<pid>-1
                     +-- ...
                        tbf           tbf     while `limited`

Each end of each cable sends through the kernel's token bucket while the star is `limited`, so every
worker has a line of its own, each way; what workers send each other passes both lines. There is no
latency but that of queues, which are kept short: a connection has no more under way than its send
buffer, which is bounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from benchmarks.parts import namespaces
from benchmarks.parts.namespaces import do
from dayfly.closing import Closing
from dayfly.life.platforms import network

#: Addresses for documentation only: nobody's.
HUB_HOST = "192.0.2.1"
_NETWORK = "192.0.2"
_FIRST_WORKER = 10
#: A cable's end in a worker's namespace.
DEVICE = "end"
#: What a connection may have under way: as long as that waits, so do the requests behind it.
_SEND_BUFFER_BYTES = 64 * 1024

P = ParamSpec("P")
T = TypeVar("T")


class Star(Closing):
    """A star for so many workers. Close it to remove it.

    spaces: the workers' namespaces, rank by rank. Raises RunFailed if it cannot be made.
    """

    def __init__(self, workers: int) -> None:
        namespaces.sweep()
        self._hub = namespaces.name_of("hub")
        self.spaces = [namespaces.name_of(str(rank)) for rank in range(workers)]
        self._thread = ThreadPoolExecutor(1, "dayfly-hub")
        try:
            self._space(self._hub)
            self._set(self._hub, "net.ipv4.ip_forward=1")
            do("ip", "-n", self._hub, "address", "add", f"{HUB_HOST}/32", "dev", "lo")
            for rank, name in enumerate(self.spaces):
                self._space(name)
                self._cable(rank, name)
            self.in_hub(network.enter, self._hub)
        except BaseException:
            self.close()
            raise

    @property
    def hub(self) -> str:
        """Its namespace."""
        return self._hub

    def host(self, rank: int) -> str:
        """The address at the end of a worker's cable."""
        return f"{_NETWORK}.{_FIRST_WORKER + rank}"

    def in_hub(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the hub, always in the same thread; what it starts stays there."""
        return self._thread.submit(work, *args, **kwargs).result()

    @contextmanager
    def limited(self, rate_bytes_per_s: float) -> Iterator[None]:
        """While this lasts, every worker has this rate, each way."""
        for name, device in self._ends():
            namespaces.limit(name, device, rate_bytes_per_s)
        try:
            yield
        finally:
            for name, device in self._ends():
                do("tc", "-n", name, "qdisc", "del", "dev", device, "root")

    def sent_bytes(self) -> int:
        """What went through all buckets since they were put there, headers included."""
        return sum(namespaces.sent_bytes(name, device) for name, device in self._ends())

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        for name in (*self.spaces, self._hub):
            namespaces.remove(name)

    def _space(self, name: str) -> None:
        do("ip", "netns", "add", name)
        do("ip", "-n", name, "link", "set", "lo", "up")
        self._set(name, f"net.ipv4.tcp_wmem=4096 16384 {_SEND_BUFFER_BYTES}")

    def _set(self, name: str, setting: str) -> None:
        do("ip", "netns", "exec", name, "sysctl", "-q", "-w", setting)

    def _cable(self, rank: int, name: str) -> None:
        port, host = _port(rank), self.host(rank)
        ends = ("name", port, "type", "veth", "peer", "name", DEVICE, "netns", name)
        do("ip", "-n", self._hub, "link", "add", *ends)
        do("ip", "-n", self._hub, "link", "set", port, "up")
        do("ip", "-n", name, "address", "add", f"{host}/32", "dev", DEVICE)
        do("ip", "-n", name, "link", "set", DEVICE, "up")
        do("ip", "-n", self._hub, "route", "add", host, "dev", port, "src", HUB_HOST)
        do("ip", "-n", name, "route", "add", HUB_HOST, "dev", DEVICE, "src", host)
        others = (f"{_NETWORK}.0/24", "via", HUB_HOST)
        do("ip", "-n", name, "route", "add", *others, "dev", DEVICE, "src", host)

    def _ends(self) -> Iterator[tuple[str, str]]:
        for rank, name in enumerate(self.spaces):
            yield name, DEVICE
            yield self._hub, _port(rank)


def _port(rank: int) -> str:
    return f"to-{rank}"
