"""A program that is run as the main one ends as the interpreter would end it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Its pool is gone before its work is: nothing but the thread is left of it.
PROGRAM = """
import atexit, time
from concurrent.futures import ThreadPoolExecutor

def work():
    time.sleep(0.3)
    print("worked", flush=True)

atexit.register(print, "exit function", flush=True)
ThreadPoolExecutor(1).submit(work)
"""
#: A function's process ends without the interpreter's own end.
RUNS = """
import os, sys
from pathlib import Path
from dayfly.runs.scripts.worker import run_as_main

file = Path(sys.argv[1])
run_as_main(file.read_bytes(), str(file), None, (), file.parent)
os._exit(0)
"""


def test_work_of_a_pool_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-c", RUNS, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["worked", "exit function"]
