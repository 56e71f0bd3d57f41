"""Scripts, started by torchrun and by `dayfly run`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.examples.page import Command, File, missing

#: For a machine that is busy with other tests.
WAIT_S = 240.0
DAYFLY = Path(sys.executable).with_name("dayfly")
_RANK_0 = re.compile(r"^\[rank 0\] (.*)$", re.MULTILINE)


#: What gloo says when it ends a process that is done: its thread lets go of a tensor, for which it
#: asks for the interpreter, which is ending (pytorch/pytorch#179291).
ABORTED = "terminate called without an active exception"


def torchrun(workers: int, *script: object, cwd: Path) -> str:
    """The script's output under torchrun, with whatever the launcher says."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node", str(workers), str(Path(__file__).with_name("to_its_end.py"))]
    return _output([*launcher, *script], cwd)


def dayfly_run(workers: int, *script: object, cwd: Path) -> str:
    """What rank 0 printed under `dayfly run`: libraries let the first process of a node speak, and
    each function is one."""
    return "\n".join(_RANK_0.findall(_output([DAYFLY, "run", "--workers", workers, *script], cwd)))


def typed(line: str, cwd: Path, wait_s: float = WAIT_S) -> tuple[int, str]:
    """A line as a reader types it with the environment on: its exit code, and all that it says.

    It is a program and its words, without anything that a shell would read otherwise.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program, *words = shlex.split(line)
    found = shutil.which(program, path=path)
    assert found is not None, f"{program}: there is no such program"
    # So started, they are forked from one that has torch imported.
    launcher = {
        "python": [sys.executable],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    }
    done = subprocess.run(
        [*launcher.get(program, [found]), *words],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=wait_s,
        check=False,
    )
    return done.returncode, done.stdout


def follow(steps: Iterable[File | Command], directory: Path) -> None:
    """Does what a page says, and asserts that each command succeeds and says what the page has."""
    for step in steps:
        if isinstance(step, File):
            (directory / step.name).write_text(step.text)
        else:
            code, output = typed(step.line, directory)
            assert code == 0, f"{step.line}\n{output}"
            assert not missing(step.said, output), f"{step.line}\n{output}"


def failing(workers: int, *script: object, cwd: Path) -> str:
    """All that a run says that is to fail, at its first death."""
    command = [DAYFLY, "run", "--workers", workers, "--max-restarts", 0, *script]
    return _output(command, cwd, code=1)


def _output(command: list[object], cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout
