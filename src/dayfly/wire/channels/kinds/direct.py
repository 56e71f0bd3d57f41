"""What links between workers can do and cost: `direct` has them."""

from __future__ import annotations

from dayfly.errors import wrong_url
from dayfly.wire.channels.abilities import Abilities, Cost
from dayfly.wire.channels.kind import ChannelKind, Ends
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.sockets.place import Place


class Direct(ChannelKind):
    """Workers that reach each other over TCP."""

    schemes = ("tcp",)
    usage = "tcp:// or tcp://address"
    abilities = Abilities(replays=False, direct=True, in_flight=4, chunk_bytes=2**18)

    def check(self, url: str) -> None:
        if Place.parse(url, self.usage).port:
            raise wrong_url("channel", url, f"give {self.usage}; ports are any that are free")

    def cost(self, nbytes: int) -> Cost:
        whole = HEADER_BYTES + nbytes
        return Cost(puts=1, gets=1, bytes_up=whole, bytes_down=whole)

    def ends(self) -> Ends:
        from dayfly.wire.channels.direct import DirectEnds

        return DirectEnds()
