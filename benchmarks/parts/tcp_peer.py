"""One end of a TCP connection that sends and receives so many bytes at once, and times receiving.

Arguments: end (a listens, b connects), address of this end and of the other, port, bytes, and the
process to die with. Prints the seconds from the first byte received to the last.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_TIMEOUT_S = 60.0
_PIECE = bytes(2**16)


def main(end: str, here: str, there: str, port: int, nbytes: int, parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    with _connected(end, here, there, port) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.sendall(b"!")
        _receive(connection, 1)
        sender = threading.Thread(target=_send, args=(connection, nbytes))
        sender.start()
        _receive(connection, 1)
        began = time.monotonic()
        _receive(connection, nbytes - 1)
        took_s = time.monotonic() - began
        sender.join()
        print(took_s)


def _connected(end: str, here: str, there: str, port: int) -> socket.socket:
    if end == "a":
        with socket.create_server((here, port)) as server:
            server.settimeout(_TIMEOUT_S)
            return server.accept()[0]
    until = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return socket.create_connection((there, port), _TIMEOUT_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _send(connection: socket.socket, nbytes: int) -> None:
    for start in range(0, nbytes, len(_PIECE)):
        connection.sendall(_PIECE[: nbytes - start])


def _receive(connection: socket.socket, nbytes: int) -> None:
    buffer = bytearray(2**16)
    while nbytes:
        got = connection.recv_into(buffer, min(nbytes, len(buffer)))
        if not got:
            raise ConnectionError(f"closed {nbytes} bytes early")
        nbytes -= got


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))  # type: ignore[misc]
