"""Two network namespaces, a cable between them, and the kernel's token bucket on both its ends.

    dayfly-bench-<pid>-a  [ end  tbf ]=========[ tbf  end ]  dayfly-bench-<pid>-b

A namespace's name has the process that made it; what a killed one left is removed by the next. A
star of several cables is in `star.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dayfly.errors import RunFailed
from dayfly.life.platforms.network import enter

_NAME = re.compile(r"dayfly-bench-(\d+)-(?:a|b|hub|\d+)")
_HOSTS = {"a": "192.0.2.1", "b": "192.0.2.2"}  # for documentation only: nobody's
_DEVICE = "end"
_PORT = 5001
#: What the bucket may save up, in seconds at its rate: so long may the kernel be busy otherwise
#: without its rate falling. It is full at the start, and this much is not counted.
_BURST_S = 0.01
#: How much may wait before the bucket, in bytes, so that TCP loses nothing.
_QUEUE_BYTES = 16 * 2**20
_PEER = Path(__file__).with_name("tcp_peer.py")


def possible() -> bool:
    """Whether this user can make network namespaces and has the tools."""
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "tc"))


def shares_of_tbf(rate_bytes_per_s: float, nbytes: int) -> list[float]:
    """Rate reached / asked for, each way, while both ends send so many bytes at once.

    Counted are the bytes that went through the bucket, TCP's and Ethernet's headers included.
    Raises RunFailed if it cannot be measured.
    """
    with _cable(rate_bytes_per_s) as names:
        before = {end: sent_bytes(name) for end, name in names.items()}
        peers: dict[str, subprocess.Popen[str]] = {}
        try:
            for end, name in names.items():
                here, there = _HOSTS[end], _HOSTS["b" if end == "a" else "a"]
                arguments = (end, here, there, _PORT, nbytes, os.getpid())
                peers[end] = subprocess.Popen(
                    ["ip", "netns", "exec", name, sys.executable, _PEER, *map(str, arguments)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            told = {end: peer.communicate(timeout=120)[0] for end, peer in peers.items()}
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"sending between network namespaces took too long: {error}") from error
        finally:
            for peer in peers.values():
                peer.kill()
                peer.wait()
        if any(peer.returncode for peer in peers.values()):
            raise RunFailed("sending between network namespaces failed; see above")
        shares = []
        for end, other in (("a", "b"), ("b", "a")):
            # What one end sent, the other received, and timed.
            wire_bytes = sent_bytes(names[end]) - before[end] - burst_bytes(rate_bytes_per_s)
            shares.append(wire_bytes / float(told[other]) / rate_bytes_per_s)
        return shares


@contextmanager
def _cable(rate_bytes_per_s: float) -> Iterator[dict[str, str]]:
    """Names of the namespaces at its ends."""
    sweep()
    names = {end: name_of(end) for end in _HOSTS}
    try:
        for name in names.values():
            do("ip", "netns", "add", name)
        cable = ("type", "veth", "peer", "name", _DEVICE, "netns", names["b"])
        do("ip", "-n", names["a"], "link", "add", _DEVICE, *cable)
        for end, name in names.items():
            do("ip", "-n", name, "address", "add", f"{_HOSTS[end]}/24", "dev", _DEVICE)
            do("ip", "-n", name, "link", "set", _DEVICE, "up")
            limit(name, _DEVICE, rate_bytes_per_s)
        yield names
    finally:
        for name in names.values():
            remove(name)


def limit(name: str, device: str, rate_bytes_per_s: float) -> None:
    """Put the kernel's bucket before what a device sends."""
    bucket = ("tbf", "rate", f"{round(8 * rate_bytes_per_s)}bit")
    sizes = ("burst", str(burst_bytes(rate_bytes_per_s)), "limit", str(_QUEUE_BYTES))
    do("tc", "-n", name, "qdisc", "add", "dev", device, "root", *bucket, *sizes)


@contextmanager
def within(name: str) -> Iterator[None]:
    """This thread is in a namespace, and so is what it starts while this lasts."""
    # A descriptor, as threads share `/proc/self` but not their namespace.
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter(name)
        try:
            yield
        finally:
            enter(f"/proc/self/fd/{before}")
    finally:
        os.close(before)


def name_of(part: str) -> str:
    """This process's namespace for a part: `a`, `b`, `hub` or a number."""
    return f"dayfly-bench-{os.getpid()}-{part}"


def sweep() -> None:
    """Remove the namespaces of processes that are gone."""
    for line in do("ip", "netns", "list").splitlines():
        found = _NAME.fullmatch(line.split()[0])
        if found is not None and not Path(f"/proc/{found.group(1)}").exists():
            remove(found.group(0))


def burst_bytes(rate_bytes_per_s: float) -> int:
    """What the bucket may save up."""
    return max(16 * 1024, int(rate_bytes_per_s * _BURST_S))


def remove(name: str) -> None:
    """End a namespace's processes, and remove it with its devices; it may be gone already."""
    with suppress(RunFailed):
        for pid in do("ip", "netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        do("ip", "netns", "del", name)


def sent_bytes(name: str, device: str = _DEVICE) -> int:
    """What went through the bucket so far, headers included."""
    (qdisc,) = json.loads(do("tc", "-n", name, "-s", "-j", "qdisc", "show", "dev", device))
    return int(qdisc["bytes"])


def do(*command: str) -> str:
    """Run a command; returns what it printed. Raises RunFailed with what it complained about."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise RunFailed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
