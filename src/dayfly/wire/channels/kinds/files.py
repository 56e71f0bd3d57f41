"""What files in memory can do and cost: `files` has them."""

from __future__ import annotations

from pathlib import Path

from dayfly.errors import wrong_url
from dayfly.wire.channels.abilities import Abilities, Cost
from dayfly.wire.channels.kind import ChannelKind, Ends, Plan, Room
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.segments import layout


class Files(ChannelKind):
    """Messages in memory, or in a directory, on one machine."""

    schemes = ("file",)
    usage = "file:///path"
    abilities = Abilities(authenticated=False)
    immediate = True

    def check(self, url: str) -> None:
        self.directory(url)

    def cost(self, nbytes: int) -> Cost:
        whole = HEADER_BYTES + nbytes
        return Cost(puts=1, gets=1, bytes_up=whole, bytes_down=whole)

    def room(self, plan: Plan) -> Room:
        made = layout.Layout.of(plan.senders, plan.budget_bytes)
        return Room(nbytes=made.arena_bytes, messages=made.slots // 4)

    def directory(self, url: str) -> Path:
        path = url.partition("://")[2]
        if not path.startswith("/"):
            raise wrong_url("channel", url, f"give an absolute path, as in {self.usage}")
        return Path(path)

    def ends(self) -> Ends:
        from dayfly.wire.channels.files import FilesEnds

        return FilesEnds()
