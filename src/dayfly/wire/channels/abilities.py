"""What a kind of channel can do, and what its messages cost: all that plans need of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a kind of channel can do, so that the engine, protocols and plans can choose.

    Args:
        largest_bytes: largest payload of a message; None: any.
        create_once: the first put of a key wins, whoever else puts it at the same time.
        blocks: a get waits at the store; else it polls, and each time is a request.
        replays: messages can be read again until they are dropped or trimmed, also by a worker that
            starts again.
        sums: it adds the messages that are pushed to `keys.SERVER`.
        direct: messages go from worker to worker, so one to everyone leaves its sender once a
            reader.
        in_flight: requests at once, each way, with which one worker uses its link well.
        chunk_bytes: smallest message that is worth its request.
        list_every_s: least time between two listings of a mailbox that nothing calls for, as a
            store may bill them.
        authenticated: others can write to where messages are, so each carries AES-GMAC (see
            `wire.authentication`); else a checksum.
    """

    largest_bytes: int | None = None
    create_once: bool = True
    blocks: bool = True
    replays: bool = True
    sums: bool = False
    direct: bool = False
    in_flight: int = 1
    chunk_bytes: int = 64 * 1024
    list_every_s: float = 0.0
    authenticated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one message costs to put, and to get once: requests to the store, and bytes moved.

    Requests that ask for a message that is not there yet come on top where gets do not block. Its
    time is (a latency + bytes / rate) each way, whatever the channel: see `virtual.Link`.
    """

    puts: int
    gets: int
    bytes_up: int
    bytes_down: int
