"""What Redis can do and costs: `redis` has it."""

from __future__ import annotations

from dayfly.wire.channels.abilities import Abilities, Cost
from dayfly.wire.channels.kind import ChannelKind, Ends, Plan, Room
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.redis.address import SCHEMES, USAGE, Address

#: How much of a budget is for bytes of messages, and how much for what a small one takes beside
#: them: its stream begins with 4 KiB, and its key and notes take most of 0.5 KiB. The server's
#: allocator rounds large ones up by as much as a quarter.
_BYTES_SHARE, _MESSAGES_SHARE = 0.65, 0.125
_MESSAGE_BYTES = 4608


class Redis(ChannelKind):
    """Messages in a Redis or Valkey server."""

    schemes = tuple(SCHEMES)
    usage = USAGE
    # Where requests share a link, more of them make each chunk later; fewer leave gaps of latency.
    abilities = Abilities(in_flight=4, chunk_bytes=2**17)

    def check(self, url: str) -> None:
        Address.parse(url)

    def cost(self, nbytes: int) -> Cost:
        whole = HEADER_BYTES + nbytes
        return Cost(puts=1, gets=1, bytes_up=whole, bytes_down=whole)

    def room(self, plan: Plan) -> Room:
        messages = int(_MESSAGES_SHARE * plan.budget_bytes) // (_MESSAGE_BYTES * plan.senders)
        return Room(nbytes=int(_BYTES_SHARE * plan.budget_bytes), messages=messages)

    def ends(self) -> Ends:
        from dayfly.wire.channels.redis import RedisEnds

        return RedisEnds()
