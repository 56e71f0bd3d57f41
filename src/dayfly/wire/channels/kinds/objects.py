"""What object stores can do and cost: `objects` has them."""

from __future__ import annotations

import os
from pathlib import Path

from dayfly.wire.channels.abilities import Abilities, Cost
from dayfly.wire.channels.kind import ChannelKind, Ends
from dayfly.wire.channels.patience import LIST_EVERY_S
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.stores.object_urls import SCHEMES, Place, check_usable

#: What one put takes, at S3.
_LARGEST_BYTES = 5 * 10**9


class Objects(ChannelKind):
    """Messages as objects in S3, Google Cloud Storage or Azure, or as files in a directory."""

    schemes = SCHEMES
    usage = "s3://bucket/prefix"
    abilities = Abilities(
        largest_bytes=_LARGEST_BYTES - HEADER_BYTES,
        blocks=False,
        in_flight=16,
        chunk_bytes=2**20,
        list_every_s=LIST_EVERY_S,
    )

    def check(self, url: str) -> None:
        Place.parse(url)
        check_usable(os.environ)

    def cost(self, nbytes: int) -> Cost:
        whole = HEADER_BYTES + nbytes
        return Cost(puts=1, gets=1, bytes_up=whole, bytes_down=whole)

    def priced_as(self, url: str) -> str | None:
        return {"s3": "s3", "az": "azure-storage"}.get(url.partition("://")[0])

    def directory(self, url: str) -> Path | None:
        return Place.parse(url).root

    def ends(self) -> Ends:
        from dayfly.wire.channels.objects import ObjectsEnds

        return ObjectsEnds()
