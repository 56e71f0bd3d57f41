"""The built-in kinds of channels: their URLs, abilities, costs and limits, without torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError, wrong_url
from dayfly.wire.channels.dynamodb_table import ITEM_BYTES, check_installed
from dayfly.wire.channels.kind import Abilities, ChannelKind, ChannelSpec, MessageCost, Room
from dayfly.wire.channels.patience import LIST_EVERY_S
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.redis.server import REDIS_SCHEMES, USAGE, RedisAddress
from dayfly.wire.segments import layout
from dayfly.wire.stores.object_urls import OBJECT_SCHEMES, ObjectURL, check_endpoints, check_usable

#: Where servers listen that no URL names a place for: this machine alone reaches them.
LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where to listen; port 0: a free one."""

    host: str = LOOPBACK
    port: int = 0

    @classmethod
    def parse(cls, url: str, usage: str) -> HostPort:
        """From a URL. Raises RequestError, in one sentence."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise wrong_url("channel", url, f"its host or port is none: give {usage}") from None
        if parts.path or parts.query or parts.fragment or parts.username is not None:
            raise wrong_url("channel", url, f"give {usage}, and nothing else")
        if host is None:
            if parts.netloc:
                raise wrong_url("channel", url, f"it has no host: give {usage}")
            return cls()
        if host in _ANY:
            raise wrong_url("channel", url, f"others cannot connect to {host}: give {usage}")
        return cls(host, port or 0)


def each_server(url: str) -> tuple[str, ...]:
    """Splits `scheme://h1:p,h2:p/rest` into a URL a server; what else is in it is of all of them.

    Raises RequestError for a server that is missing between two commas.
    """
    scheme, _, rest = url.partition("://")
    hosts, more = re.fullmatch(r"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    user, at, hosts = hosts.rpartition("@")
    servers = hosts.split(",")
    if len(servers) > 1 and not all(servers):
        raise wrong_url("channel", url, "a host is missing beside a comma: give h1:p,h2:p")
    return tuple(f"{scheme}://{user}{at}{one}{more}" for one in servers)


class Files(ChannelKind):
    """Messages in memory, or in a directory, on one machine."""

    schemes = ("file",)
    usage = "file:///path"
    factory_path = "dayfly.wire.channels.files:FileFactory"
    abilities = Abilities(authenticated=False)
    immediate = True
    zero_copy = True

    def check(self, url: str) -> None:
        self.directory(url)

    def room(self, spec: ChannelSpec) -> Room:
        made = layout.SegmentLayout.of(spec.senders, spec.budget_bytes)
        return Room(nbytes=made.arena_bytes, messages=made.slots // 4)

    def directory(self, url: str) -> Path:
        path = url.partition("://")[2]
        if not path.startswith("/"):
            raise wrong_url("channel", url, f"give an absolute path, as in {self.usage}")
        return Path(path)


#: How much of a budget is for bytes of messages, and how much for what a small one takes beside
#: them: its stream begins with 4 KiB, and its key and notes take most of 0.5 KiB. The server's
#: allocator rounds large ones up by as much as a quarter.
_BYTES_SHARE, _MESSAGES_SHARE = 0.65, 0.125
_MESSAGE_BYTES = 4608


class Redis(ChannelKind):
    """Messages in a Redis or Valkey server."""

    schemes = tuple(REDIS_SCHEMES)
    stores = ("elasticache", "elasticache-*")
    usage = USAGE
    factory_path = "dayfly.wire.channels.redis:RedisFactory"
    # Where requests share a link, more of them make each chunk later; fewer leave gaps of latency.
    abilities = Abilities(in_flight=4, chunk_bytes=2**17)

    def check(self, url: str) -> None:
        each = [RedisAddress.parse(one) for one in self.servers(url)]
        if len(set(each)) < len(each):
            raise wrong_url("channel", url, "it names a server twice: give each once")

    def servers(self, url: str) -> tuple[str, ...]:
        return each_server(url)

    def room(self, spec: ChannelSpec) -> Room:
        messages = int(_MESSAGES_SHARE * spec.budget_bytes) // (_MESSAGE_BYTES * spec.senders)
        return Room(nbytes=int(_BYTES_SHARE * spec.budget_bytes), messages=messages)


#: What one put takes, at S3.
_LARGEST_BYTES = 5 * 10**9


class Objects(ChannelKind):
    """Messages as objects in S3, Google Cloud Storage or Azure, or as files in a directory."""

    schemes = OBJECT_SCHEMES
    stores = ("s3", "s3-express", "alibaba-oss", "azure-storage", "gcs")
    usage = "s3://bucket/prefix"
    factory_path = "dayfly.wire.channels.objects:ObjectFactory"
    abilities = Abilities(
        largest_bytes=_LARGEST_BYTES - HEADER_BYTES,
        blocks=False,
        in_flight=16,
        chunk_bytes=2**20,
        list_every_s=LIST_EVERY_S,
    )

    def check(self, url: str) -> None:
        ObjectURL.parse(url)
        check_usable(os.environ)

    def priced_as(self, url: str) -> str | None:
        return {"s3": "s3", "az": "azure-storage"}.get(url.partition("://")[0])

    def directory(self, url: str) -> Path | None:
        return ObjectURL.parse(url).root


#: Up to here a message is one item.
INLINE_BYTES = 16 * 1024
#: What a worker may send in a round, see `refuse_large`.
LARGEST_ROUND_BYTES = 32 * 2**20
#: Write units a second of a new table on demand, for all workers together.
#: Source: docs.aws.amazon.com/amazondynamodb, on-demand capacity mode (as of 2026-11).
_NEW_TABLE_UNITS_PER_S = 4000
_UNIT_BYTES = 1024
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
IN_FLIGHT = 16


class DynamoDB(ChannelKind):
    """Messages as items of a table: for models of a few megabytes."""

    schemes = ("dynamodb",)
    stores = ("dynamodb",)
    usage = "dynamodb://table"
    factory_path = "dayfly.wire.channels.dynamodb:DynamoDBFactory"
    abilities = Abilities(
        blocks=False, in_flight=IN_FLIGHT, chunk_bytes=ITEM_BYTES, list_every_s=LIST_EVERY_S
    )

    def check(self, url: str) -> None:
        table_of(url)
        check_installed()
        check_endpoints(os.environ, ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"))

    def cost(self, nbytes: int) -> MessageCost:
        items = 1 if nbytes <= INLINE_BYTES else 1 + -(-nbytes // ITEM_BYTES)
        whole = HEADER_BYTES + nbytes
        return MessageCost(puts=items, gets=items, bytes_up=whole, bytes_down=whole)

    def priced_as(self, url: str) -> str | None:
        return "dynamodb"

    def room(self, spec: ChannelSpec) -> Room:
        refuse_large(spec)
        return super().room(spec)


def refuse_large(spec: ChannelSpec) -> None:
    """Raise RequestError, with the arithmetic, for more than DynamoDB is good for.

    A KB is a write unit, to put and again to remove; a new table takes 4000 a second for all. At
    the bound a worker's round is 32768 units: eight seconds and two cents, before anything is read.
    """
    if spec.senders == 1 or spec.ahead_bytes <= LARGEST_ROUND_BYTES:
        return  # a single worker sends nothing but reports
    units = -(-spec.ahead_bytes // _UNIT_BYTES)
    items = -(-spec.ahead_bytes // ITEM_BYTES)
    usd = Catalogue().store("dynamodb").puts_usd(items, spec.ahead_bytes)
    raise RequestError(
        f"each worker sends {spec.ahead_bytes / 2**20:.0f} MiB a round, which DynamoDB bills as "
        f"{units} write units (${usd:.2f}) and a new table takes "
        f"{units / _NEW_TABLE_UNITS_PER_S:.0f} s for: it is for rounds of up to "
        f"{LARGEST_ROUND_BYTES / 2**20:.0f} MiB, so give another "
        "channel, such as s3://bucket/prefix"
    )


def table_of(url: str) -> str:
    """The table that a URL names. Raises RequestError if it is no name of one."""
    table = url.partition("://")[2]
    if not table:
        raise wrong_url("channel", url, "give a table's name, as in dynamodb://table")
    if not _TABLE.fullmatch(table):
        raise wrong_url(
            "channel",
            url,
            "what follows is no name of a table: give 3 to 255 letters, digits, '_', '-' and '.', "
            "as AWS has it, such as dynamodb://table",
        )
    return table


class ParameterServer(ChannelKind):
    """A parameter server on the coordinator's machine, or several that share the chunks."""

    schemes = ("ps",)
    stores = ("vm-*",)
    usage = "ps:// or ps://host:port"
    factory_path = "dayfly.wire.channels.parameter_server:ParameterServerFactory"
    abilities = Abilities(replays=False, sums=True, in_flight=4, chunk_bytes=2**18)

    def check(self, url: str) -> None:
        each = [HostPort.parse(one, self.usage) for one in self.servers(url)]
        named = [one for one in each if one.port]
        if len(set(named)) < len(named):
            raise wrong_url("channel", url, "it names a port twice: give each once, or no ports")

    def servers(self, url: str) -> tuple[str, ...]:
        return each_server(url)

    def two_at_once(self, url: str) -> bool:
        """Not at a port that is given."""
        return not any(HostPort.parse(one, self.usage).port for one in self.servers(url))


class Direct(ChannelKind):
    """Workers that reach each other over TCP."""

    schemes = ("tcp",)
    usage = "tcp:// or tcp://address"
    factory_path = "dayfly.wire.channels.direct:DirectFactory"
    abilities = Abilities(replays=False, direct=True, in_flight=4, chunk_bytes=2**18)

    def check(self, url: str) -> None:
        if HostPort.parse(url, self.usage).port:
            raise wrong_url("channel", url, f"give {self.usage}; ports are any that are free")
