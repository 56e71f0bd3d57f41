"""What a parameter server can do and costs: `parameter_server` has it."""

from __future__ import annotations

from dayfly.wire.channels.abilities import Abilities, Cost
from dayfly.wire.channels.kind import ChannelKind, Ends
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.sockets.place import Place


class ParameterServer(ChannelKind):
    """A parameter server on the coordinator's machine."""

    schemes = ("ps",)
    usage = "ps:// or ps://host:port"
    abilities = Abilities(replays=False, sums=True, in_flight=4, chunk_bytes=2**18)

    def check(self, url: str) -> None:
        Place.parse(url, self.usage)

    def cost(self, nbytes: int) -> Cost:
        whole = HEADER_BYTES + nbytes
        return Cost(puts=1, gets=1, bytes_up=whole, bytes_down=whole)

    def ends(self) -> Ends:
        from dayfly.wire.channels.parameter_server import ParameterServerEnds

        return ParameterServerEnds()
