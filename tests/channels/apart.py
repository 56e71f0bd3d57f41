"""An end of a channel in a process of its own, to be killed.

    python -m tests.channels.apart worker DIRECTORY        rank 1 of a direct channel
    python -m tests.channels.apart coordinator DIRECTORY   of a parameter server

It prints a line once it is there; the coordinator's is the pid of its server.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from dayfly.wire.channels.kinds import Direct, ParameterServer
from dayfly.wire.channels.parameter_server import ParameterServerChannel
from tests.channels.kit import plan, site

_ROOT = Path(__file__).parents[2]


def start(which: str, directory: Path) -> subprocess.Popen[str]:
    """The process; its standard output is to be read."""
    command = [sys.executable, "-m", __name__, which, str(directory)]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)


def main(which: str, directory: Path) -> None:
    if which == "worker":
        channel = Direct().open(site(directory, "tcp://"), 1)
        print("open", flush=True)
    else:
        channel = ParameterServer().create(site(directory, "ps://"), plan(3))
        assert isinstance(channel, ParameterServerChannel)
        print(channel._process.pid, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
