"""DynamoDB as a channel, for small models: an item has 400 KB, and each KB is a write unit.

A message up to 16 KiB is one item. A larger one is parts of 390 KiB, each in a partition of its
own so that the load spreads, and then an item that names them: it is written last, on condition
that there is none, so readers see all of a message or nothing, and the first put wins. Listings
read the small items only. Removing an item costs as much as writing it did. What a worker that was
killed half-way has left is named by nothing, and expires.

Requests are counted in items, as they are billed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from dayfly.errors import WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.dynamodb_table import (
    ITEM_BYTES,
    PARTS,
    READS,
    WRITES,
    Address,
    Busy,
    DynamoTable,
    Item,
    Write,
    address_of,
    removing,
    storing,
    trouble_of,
)
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.channels.kinds import (
    IN_FLIGHT,
    INLINE_BYTES,
    DynamoDB,
    refuse_large,
    table_of,
)
from dayfly.wire.channels.polled import PolledChannel, Vanished, ready
from dayfly.wire.keys import COORDINATOR, EVERYONE, HEADER_BYTES, SERVER, Key
from dayfly.wire.message import Incoming
from dayfly.wire.outages import Trouble, pause

#: Seconds until DynamoDB removes a message, and a marker, that nobody removed.
MESSAGE_S = 2 * 24 * 3600
MARKER_S = 30 * 24 * 3600

One = TypeVar("One")


class DynamoChannel(PolledChannel):
    """Messages as items of a table."""

    abilities = DynamoDB.abilities

    def __init__(self, site: Site) -> None:
        table, namespace = table_of(site.url), site.namespace
        super().__init__(site, f"dynamodb://{table}")
        try:
            self._table = DynamoTable(table, connections=2 * IN_FLIGHT)
        except Exception as error:
            raise self._refusal(error, table) from None
        self._marker: Address = (namespace.run, f"{namespace.generation:06d}")
        self._senders = 0

    def make(self, senders: int) -> None:
        """Make the channel. Raises WireError if it is there, or the table is not fit for it."""
        self._making(self._table.check)
        self._senders = senders
        marker = self._marker_item()
        won = self._making(lambda: self._table.put_new(marker))
        if not won:
            there = self._making(lambda: self._table.get(self._marker))
            if there is None or there.get("nonce") != marker["nonce"]:
                name = "/".join(self._marker)
                raise WireError(f"the channel at {self._place}/{name} is there already")

    def find(self) -> None:
        """Raise WireError unless the channel was made."""
        marker = self._insist("opening the channel", lambda: self._table.get(self._marker))
        if marker is None or "open" not in marker:
            raise WireError(f"there is no channel at {self._place}/{'/'.join(self._marker)}")
        self._senders = self._table.number(marker, "senders")

    def trim(self, before_step: int) -> None:
        super().trim(before_step)
        if self._senders:
            # A run may take longer than a marker is kept.
            self._insist("a trim", lambda: self._table.put(self._marker_item()))

    def close(self) -> None:
        super().close()
        self._table.close()

    def _trouble(self, error: Exception) -> Trouble | None:
        return trouble_of(error, self._table.name)

    def _create(self, key: Key, head: bytes, payload: memoryview) -> tuple[bool, int]:
        nonce = uuid.uuid4().hex
        size = HEADER_BYTES + payload.nbytes
        small = payload.nbytes <= INLINE_BYTES
        parts = [] if small else _parts(payload)
        mailbox, name = self._address(key)
        for start in range(0, len(parts), PARTS):
            some = range(start, min(start + PARTS, len(parts)))
            at = [self._part((mailbox, name), nonce, number) for number in some]
            self._write(
                key,
                [
                    storing(self._item(one, data=bytes(parts[number])))
                    for one, number in zip(at, some, strict=True)
                ],
            )
        item = self._item((mailbox, name), data=head + bytes(payload) if small else head)
        item |= {
            "bytes": {"N": str(size)},
            "parts": {"N": str(len(parts))},
            "nonce": {"S": nonce},
        }
        won = self._insist(key, lambda: self._table.put_new(item))
        if not won:
            # It may be this very message, whose answer was lost.
            there = self._insist(key, lambda: self._table.get((mailbox, name)))
            won = there is not None and there.get("nonce") == item["nonce"]
        if not won:
            self._erase([self._part((mailbox, name), nonce, one) for one in range(len(parts))])
        return won, 1 + len(parts)

    def _fetch(self, key: Key) -> Incoming | None:
        at = self._address(key)
        item = self._table.get(at)
        if item is None:
            return None
        count = self._table.number(item, "parts") if "parts" in item else 0
        data = self._table.blob(item, "data")
        if not count:
            return Incoming(data.nbytes, [data])
        pieces = self._pieces(data, at, self._table.text(item, "nonce"), count)
        return Incoming(self._table.number(item, "bytes"), pieces, requests=1 + count)

    def _pieces(
        self, head: memoryview, at: Address, nonce: str, count: int
    ) -> Iterator[memoryview]:
        yield head
        for start in range(0, count, PARTS):
            wanted = [self._part(at, nonce, one) for one in range(start, min(start + PARTS, count))]
            found = self._items(wanted)
            if len(found) < len(wanted):
                raise Vanished
            for item in sorted(found, key=lambda one: one["name"]["S"]):
                yield self._table.blob(item, "data")

    def _look(self, keys: Sequence[Key]) -> tuple[frozenset[Key], int]:
        at = {self._address(key): key for key in keys}
        found = [at[address_of(item)] for item in self._items(list(at), ["box", "name"])]
        return frozenset(found), len(keys)

    def _list(self, destination: int | None) -> Iterator[tuple[Key, int]]:
        everyone = (*range(self._senders), EVERYONE, COORDINATOR, SERVER)
        for reader in everyone if destination is None else (destination,):
            for item in self._table.query(self._box(reader), ["name", "bytes"]):
                key = Key.parse(item["name"]["S"], reader)
                if key is not None:
                    yield key, self._table.number(item, "bytes")

    def _delete(self, keys: Sequence[Key]) -> None:
        self._delete_at([self._address(key) for key in keys])

    def _is_open(self) -> bool:
        marker = self._table.get(self._marker)
        return marker is not None and "open" in marker

    def _remove_run(self) -> None:
        # The markers say which boxes there are, so they are closed first and removed last.
        run = self._marker[0]
        markers = list(self._table.query(run, ["name", "senders"]))
        for marker in markers:
            self._table.put({**marker, **self._expiring(MARKER_S)})
        for marker in markers:
            senders = self._table.number(marker, "senders")
            for reader in (*range(senders), EVERYONE, COORDINATOR, SERVER):
                mailbox = f"{run}/{marker['name']['S']}/{Key(0, 'a', 0, reader).mailbox}"
                while found := [address_of(item) for item in self._table.query(mailbox, ["name"])]:
                    self._delete_at(found)
        self._erase([address_of(marker) for marker in markers])

    def _delete_at(self, addresses: Sequence[Address]) -> None:
        """Remove messages: first what names their parts, then those."""
        items = self._items(list(dict.fromkeys(addresses)), ["box", "name", "parts", "nonce"])
        self._erase([address_of(item) for item in items])
        self._erase(
            [
                self._part(address_of(item), self._table.text(item, "nonce"), one)
                for item in items
                if "parts" in item
                for one in range(self._table.number(item, "parts"))
            ]
        )

    def _items(self, addresses: Sequence[Address], fields: Sequence[str] = ()) -> list[Item]:
        """Those items that are there, however often the table has to be asked."""
        items: list[Item] = []

        def ask(some: Sequence[Address]) -> Sequence[Address]:
            found, left = self._table.get_all(some, fields)
            items.extend(found)
            return left

        self._in_batches("a look", ask, addresses, READS)
        return items

    def _write(self, what: Key | str, requests: Sequence[Write]) -> None:
        """Store and remove items, however often the table has to be asked."""
        self._in_batches(what, self._table.write, requests, WRITES)

    def _in_batches(
        self,
        what: Key | str,
        ask: Callable[[Sequence[One]], Sequence[One]],
        parts: Sequence[One],
        at_once: int,
    ) -> None:
        """Asks for so many parts at once; `ask` returns those that the table left for later."""

        def some(left: Sequence[One]) -> Sequence[One]:
            later = ask(left)
            if len(later) == len(left):
                raise Busy
            return later

        for start in range(0, len(parts), at_once):
            left = parts[start : start + at_once]
            while left := self._insist(what, partial(some, left)):
                pause()

    def _erase(self, addresses: Sequence[Address]) -> None:
        self._write("a removal", [removing(one) for one in addresses])

    def _box(self, reader: int) -> str:
        return f"{'/'.join(self._marker)}/{Key(0, 'a', 0, reader).mailbox}"

    def _address(self, key: Key) -> Address:
        return f"{'/'.join(self._marker)}/{key.mailbox}", key.name

    @staticmethod
    def _part(at: Address, nonce: str, number: int) -> Address:
        return f"{at[0]}/{at[1]}/{nonce}", f"{number:04d}"

    def _item(self, at: Address, data: bytes) -> Item:
        named: Item = {"box": {"S": at[0]}, "name": {"S": at[1]}, "data": {"B": data}}
        return named | self._expiring(MESSAGE_S)

    def _marker_item(self) -> Item:
        mailbox, name = self._marker
        item: Item = {
            "box": {"S": mailbox},
            "name": {"S": name},
            "senders": {"N": str(self._senders)},
            "open": {"BOOL": True},
            "nonce": {"S": uuid.uuid4().hex},
        }
        return item | self._expiring(MARKER_S)

    def _expiring(self, after_s: int) -> Item:
        return {"expires": {"N": str(int(time.time()) + after_s)}}

    def _refusal(self, error: Exception, table: str) -> Exception:
        trouble = trouble_of(error, table)
        return error if trouble is None else WireError(f"{self._place}: {trouble.text}")


class DynamoDBFactory(ChannelFactory):
    """Makes the channels of `DynamoDB`."""

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        refuse_large(spec)
        channel = DynamoChannel(site)
        return ready(channel, lambda: channel.make(spec.senders))

    def open(self, site: Site, reader: int) -> Channel:
        channel = DynamoChannel(site)
        return ready(channel, channel.find)

    def remove(self, site: Site) -> None:
        with DynamoChannel(site) as channel:
            channel.remove()


def _parts(payload: memoryview) -> list[memoryview]:
    return [payload[start : start + ITEM_BYTES] for start in range(0, len(payload), ITEM_BYTES)]
