"""The lifeline's race: arming after the coordinator is gone."""

from __future__ import annotations

import os
import signal

from dayfly import lifeline
from dayfly.life.platforms import processes


def test_arming_too_late_is_fatal_at_once() -> None:
    line = lifeline.Lifeline()
    read_fd = os.dup(line.read_fd)
    line.close()
    pid = os.fork()
    if pid == 0:
        lifeline.arm(read_fd)
        os._exit(0)
    os.close(read_fd)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def test_closing_kills_who_armed_and_nobody_else() -> None:
    line, other = lifeline.Lifeline(), lifeline.Lifeline()
    pidfds = {}
    for one in (line, other):
        read_fd = os.dup(one.read_fd)  # a plain fork lets go of its lifelines
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            lifeline.arm(read_fd)
            os.write(tell, b"armed")
            while True:
                signal.pause()
        os.close(read_fd)
        assert os.read(told, 5) == b"armed"
        os.close(told)
        os.close(tell)
        pidfds[one] = (os.pidfd_open(pid), pid)
    line.close()
    assert processes.is_dead(pidfds[line][0], timeout_s=60)
    assert not processes.is_dead(pidfds[other][0])
    other.close()
    for pidfd, pid in pidfds.values():
        assert processes.is_dead(pidfd, timeout_s=60)
        os.close(pidfd)
        os.waitpid(pid, 0)
