"""A store through which functions talk, as the catalogue knows it: its limits, speeds and prices.

A store is a service that bills by request and by byte, or servers that are rented by time: machines
with a parameter server (CE-scaling's VM-PS) or nodes of a cache. Several servers share the keys.

What no source gives is None. A GB is 2**30 bytes here, as the stores bill it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from dayfly.elementwise import ceiling, most
from dayfly.errors import RequestError

_GB = 2**30
_HOURS_A_MONTH = 730
#: Servers of one store, at most.
MOST_SERVERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """Limits, speeds and prices of one store.

    Args:
        name: of its data file.
        overridden: the rows that are the user's own.
        latency_s: from a request to its first byte.
        puts_per_s: requests that it takes; of one prefix where it has any.
        gets_per_s: requests that it takes; of one prefix where it has any.
        bytes_per_s: of the whole store, all functions together, each way.
        item_max_bytes: largest item.
        usd_per_put: of a request.
        usd_per_get: of a request.
        put_unit_bytes: a put is billed for each of these begun; None: for each request.
        get_unit_bytes: a get is billed for each of these begun; None: for each request.
        usd_per_gb_up: of bytes that functions send.
        usd_per_gb_down: of bytes that functions receive.
        usd_per_gb_hour: of bytes kept.
        usd_per_gb_month: of bytes kept.
        storage_min_bytes: least bytes that are billed as kept.
        server_vcpus: of one server.
        server_memory_mib: of one server.
        usd_per_server_hour: of one server, from the first invocation of a run to its end.
        server_step_s: a server's time is rounded up to it.
        server_min_s: least time of a server that is billed.
        servers: how many there are; bytes_per_s is of all of them.
    """

    name: str
    overridden: tuple[str, ...] = ()
    latency_s: float | None = None
    puts_per_s: float | None = None
    gets_per_s: float | None = None
    bytes_per_s: float | None = None
    item_max_bytes: int | None = None
    usd_per_put: float | None = None
    usd_per_get: float | None = None
    put_unit_bytes: int | None = None
    get_unit_bytes: int | None = None
    usd_per_gb_up: float | None = None
    usd_per_gb_down: float | None = None
    usd_per_gb_hour: float | None = None
    usd_per_gb_month: float | None = None
    storage_min_bytes: int | None = None
    server_vcpus: float | None = None
    server_memory_mib: int | None = None
    usd_per_server_hour: float | None = None
    server_step_s: float | None = None
    server_min_s: float | None = None
    servers: int = 1

    @property
    def rented(self) -> bool:
        """Whether it is servers that are billed by time."""
        return self.usd_per_server_hour is not None

    @property
    def priced(self) -> bool:
        """Whether a source gives prices of its requests, or of its servers' time."""
        by_request = self.usd_per_put is not None and self.usd_per_get is not None
        return by_request or self.rented

    def of_servers(self, count: int) -> Self:
        """Returns so many servers of this type, which share the keys: `NAME:COUNT`.

        Raises:
            RequestError: the count is no number from 1 to 1000, or the store is no server.
        """
        if not self.rented:
            raise RequestError(
                f"{self.name} is no server of which there may be {count}: leave the number out"
            )
        if not 1 <= count <= MOST_SERVERS:
            raise RequestError(f"{count} servers {self.name}: give 1 to {MOST_SERVERS}")
        if count == 1:
            return self
        rate = None if self.bytes_per_s is None else count * self.bytes_per_s
        return replace(self, name=f"{self.name}:{count}", bytes_per_s=rate, servers=count)

    def check_priced(self) -> None:
        """Checks that there are prices.

        Raises:
            RequestError: no source gives any.
        """
        if not self.priced:
            raise RequestError(
                f"the catalogue has no prices of store {self.name}: add usd_per_put and "
                "usd_per_get to a catalogue of your own, or name another store"
            )

    def puts_usd(self, puts: int, size_bytes: int) -> float:
        """Returns the price of puts in USD.

        Args:
            puts: how many.
            size_bytes: of all of them together.
        """
        return (self.usd_per_put or 0) * self._units(puts, size_bytes, self.put_unit_bytes)

    def gets_usd(self, gets: int, size_bytes: int) -> float:
        """Returns the price of gets in USD.

        Args:
            gets: how many.
            size_bytes: of all of them together.
        """
        return (self.usd_per_get or 0) * self._units(gets, size_bytes, self.get_unit_bytes)

    def transfer_usd(self, up_bytes: int, down_bytes: int) -> float:
        """Returns the price of a transfer in USD.

        Args:
            up_bytes: to the store.
            down_bytes: from the store.
        """
        up_usd, down_usd = self.usd_per_gb_up or 0, self.usd_per_gb_down or 0
        return (up_usd * up_bytes + down_usd * down_bytes) / _GB

    def storage_usd(self, stored_bytes: int, seconds: float) -> float:
        """Returns the price of storage in USD.

        Args:
            stored_bytes: that are kept.
            seconds: how long they are kept.
        """
        hour_usd = (self.usd_per_gb_hour or 0) + (self.usd_per_gb_month or 0) / _HOURS_A_MONTH
        return hour_usd * max(stored_bytes, self.storage_min_bytes or 0) / _GB * seconds / 3600

    def servers_usd(self, seconds: float) -> float:
        """Dollars for the servers of a run of so many seconds (CE-scaling, equation 5)."""
        step_s = self.server_step_s or 1.0
        # A float is a little off: a billionth of a second must not cost a step.
        used_s = max(round(seconds, 6), self.server_min_s or 0.0)
        billed_s = max(1, math.ceil(used_s / step_s)) * step_s
        return self.servers * (self.usd_per_server_hour or 0.0) * billed_s / 3600

    def _units(self, requests: int, size_bytes: int, unit_bytes: int | None) -> int:
        """Billed units of requests of which only the number and the bytes are known.

        Exact for requests of equal size. Items that are too large are sent as several.
        """
        if self.item_max_bytes is not None:
            requests = most(requests, ceiling(size_bytes / self.item_max_bytes))
        if unit_bytes is None:
            return requests
        units: int = requests * most(1, ceiling(size_bytes / most(1, requests) / unit_bytes))
        return units
