"""`python -m dayfly.wire.sockets`: the process of a parameter server; see `process`."""

from __future__ import annotations

import json
import os
import signal
import sys

from dayfly.errors import WireError
from dayfly.wire.authentication import Authenticator
from dayfly.wire.keys import EVERYONE, SERVER, Key
from dayfly.wire.sockets.server import Server
from dayfly.wire.sockets.sums import Sums
from dayfly.wire.sockets.table import Table


def main() -> None:
    """Serve what standard input says, until it closes."""
    order = json.loads(sys.stdin.readline())
    world_size = int(order["world_size"])

    def readers(key: Key) -> set[int] | None:
        if key.destination != EVERYONE or not (key.source >= 0 or key.source == SERVER):
            return None
        return set(range(world_size)) - {key.source}

    by = Authenticator(order["token"], order["run"], int(order["generation"]))
    table = Table(
        readers, limit_bytes=int(order["limit_bytes"]), full="raise --log-budget to keep more"
    )
    try:
        server = Server(
            table,
            host=order["host"],
            port=order["port"],
            token=by.handshake,
            audience=order["audience"],
            sums=Sums(table, world_size, by),
        )
    except WireError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"host": server.host, "port": server.port}), flush=True)
    sys.stdin.read()
    # At once, whatever its threads are at: nobody is left whom it could serve.
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
