"""What DynamoDB can do and costs: `dynamodb` has it."""

from __future__ import annotations

import os
import re

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError, wrong_url
from dayfly.wire.channels.abilities import Abilities, Cost
from dayfly.wire.channels.dynamodb_table import ITEM_BYTES, check_installed
from dayfly.wire.channels.kind import ChannelKind, Ends, Plan, Room
from dayfly.wire.channels.patience import LIST_EVERY_S
from dayfly.wire.endpoints import check_endpoints
from dayfly.wire.header import HEADER_BYTES

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
    usage = "dynamodb://table"
    abilities = Abilities(
        blocks=False, in_flight=IN_FLIGHT, chunk_bytes=ITEM_BYTES, list_every_s=LIST_EVERY_S
    )

    def check(self, url: str) -> None:
        table_of(url)
        check_installed()
        check_endpoints(os.environ, ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"))

    def cost(self, nbytes: int) -> Cost:
        items = 1 if nbytes <= INLINE_BYTES else 1 + -(-nbytes // ITEM_BYTES)
        whole = HEADER_BYTES + nbytes
        return Cost(puts=items, gets=items, bytes_up=whole, bytes_down=whole)

    def priced_as(self, url: str) -> str | None:
        return "dynamodb"

    def room(self, plan: Plan) -> Room:
        refuse_large(plan)
        return super().room(plan)

    def ends(self) -> Ends:
        from dayfly.wire.channels.dynamodb import DynamoDBEnds

        return DynamoDBEnds()


def refuse_large(plan: Plan) -> None:
    """Raise RequestError, with the arithmetic, for more than DynamoDB is good for.

    A KB is a write unit, to put and again to remove; a new table takes 4000 a second for all. At
    the bound a worker's round is 32768 units: eight seconds and two cents, before anything is read.
    """
    if plan.senders == 1 or plan.ahead_bytes <= LARGEST_ROUND_BYTES:
        return  # a single worker sends nothing but reports
    units = -(-plan.ahead_bytes // _UNIT_BYTES)
    items = -(-plan.ahead_bytes // ITEM_BYTES)
    usd = Catalogue().store("dynamodb").puts_usd(items, plan.ahead_bytes)
    raise RequestError(
        f"each worker sends {plan.ahead_bytes / 2**20:.0f} MiB a round, which DynamoDB bills as "
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
