"""A program that is forked from the server, beside the same one that is started."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing import Queue, current_process
from pathlib import Path

import pytest
from execnet.gateway_io import popen_bootstrapline

from dayfly.life.environment import library_settings
from tests.warm import popen

ROOT = Path(__file__).parents[2]
Script = Callable[[str], list[str]]
SEEN = str(Path(__file__).with_name("seen.py"))


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """The words behind the interpreter that run some code."""

    def write(code: str) -> list[str]:
        path = tmp_path / "script.py"
        path.write_text(code)
        return [str(path)]

    return write


def run(
    arguments: Sequence[str], *, warm: bool = True, **given: object
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    if warm:
        return subprocess.run(command, capture_output=True, text=True, timeout=100, **given)  # type: ignore[call-overload, no-any-return]
    with popen.cold():
        return run(arguments, warm=True, **given)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("script", marks=pytest.mark.slow),
        pytest.param("module", marks=pytest.mark.slow),
        "safe path",
    ],
)
@pytest.mark.long
def test_a_program_sees_what_it_would_have_seen(form: str, tmp_path: Path) -> None:
    words = {
        "script": [SEEN, "a"],
        "module": ["-m", "tests.warm.seen", "a", "-b"],
        "safe path": ["-P", SEEN],
    }[form]
    environment = {**os.environ, "MARK": "here.1", "PYTHONPATH": "/somewhere:/else"}
    signal.pthread_sigmask(signal.SIG_BLOCK, [])
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        given = {
            "cwd": ROOT if form == "module" else tmp_path,
            "env": environment,
            "start_new_session": form == "module",
        }
        warm, cold = (run(words, warm=warm, **given) for warm in (True, False))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert warm.returncode == cold.returncode == 0, warm.stderr
    seen, expected = json.loads(warm.stdout), json.loads(cold.stdout)
    # What libraries put there for what they load later.
    added = set(expected["environment"]) - set(environment)
    assert all(name.startswith(("KMP_", "TORCH")) for name in added), added
    expected["environment"] = environment
    seen["environment"] = {n: v for n, v in seen["environment"].items() if n in environment}
    assert seen == expected
    assert seen["parent"] == os.getpid()


@pytest.mark.parametrize(
    ("code", "ended", "said"),
    [
        ("print('a'); import sys; print('b', file=sys.stderr)", 0, "b\n"),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('words')", 1, "words\n"),
        ("1/0", 1, "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
    ],
    ids=["prints", "code", "words", "error", "interrupted", "killed"],
)
@pytest.mark.long
def test_a_program_ends_as_it_would_have(script: Script, code: str, ended: int, said: str) -> None:
    done = run(script(code))
    assert (done.returncode, done.stderr[-len(said) :] if said else done.stderr) == (ended, said)


def test_threads_and_what_is_registered_come_before_the_end(script: Script) -> None:
    code = """
import atexit, threading, time
atexit.register(print, "registered")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("main")
"""
    assert run(script(code)).stdout.split() == ["main", "thread", "registered"]


def test_descriptors_are_those_that_were_passed(script: Script) -> None:
    reads, writes = os.pipe()
    with open(reads) as end:
        code = f"import os; os.write({writes}, b'hello'); print(len(os.listdir('/proc/self/fd')))"
        done = run(script(code), pass_fds=[writes], stdin=subprocess.DEVNULL)
        os.close(writes)
        assert end.read() == "hello"  # and its end: nobody else holds the pipe
    # Beside it: the directory that is listed, and the program's own server.
    assert int(done.stdout) == 6


@pytest.mark.long
def test_what_a_program_starts_is_warm_too(script: Script) -> None:
    code = """
import subprocess, sys
print("torch" in sys.modules)
if len(sys.argv) == 1:
    sys.stdout.flush()
    subprocess.run([sys.executable, sys.argv[0], "second"])
"""
    assert run(script(code)).stdout.split() == ["True", "True"]
    assert run(script(code), warm=False).stdout.split() == ["False", "False"]


def tell(told: Queue[tuple[str, str]]) -> None:
    """Put this process's name, and how the program was started of which it is a fork."""
    told.put((current_process().name, Path("/proc/self/cmdline").read_text()))


@pytest.mark.parametrize(
    ("method", "forked_from"),
    [("spawn", "tests.warm"), ("forkserver", "tests.warm"), ("cold spawn", "multiprocessing.")],
)
@pytest.mark.long
def test_processes_of_multiprocessing_are_warm(method: str, forked_from: str) -> None:
    context = multiprocessing.get_context(method.removeprefix("cold "))
    told = context.Queue()
    process = context.Process(target=tell, args=(told,), name="mine")
    with popen.cold() if "cold" in method else nullcontext():
        process.start()
    name, command = told.get(timeout=100)
    process.join()
    assert (name, process.exitcode) == ("mine", 0)
    assert forked_from in command


def test_processes_of_tests_are_warm() -> None:
    """As execnet starts them for pytest-xdist: they execute the first line that they read."""
    line = repr("import sys; print('torch' in sys.modules, sys.stdin.read())")
    done = run(["-u", "-c", popen_bootstrapline], input=f"{line}\nrest")
    assert (done.returncode, done.stdout) == (0, "True rest\n")


@pytest.mark.cold
def test_a_cold_test_starts_as_ever(script: Script) -> None:
    done = run(script("import sys; print('torch' in sys.modules)"))
    assert done.stdout == "False\n"


def test_functions_are_warm() -> None:
    """The platform's zygote has the variables with which a server was started, and no other."""
    server = popen.Server.start(popen.at_load({**os.environ, **library_settings({})}))
    assert server.fits({**os.environ, **library_settings(os.environ)})
    assert server.fits(os.environ)  # a command
    assert not server.fits({**os.environ, "OMP_NUM_THREADS": "2"})
    assert not server.fits({**os.environ, "LD_PRELOAD": "libother.so"})
