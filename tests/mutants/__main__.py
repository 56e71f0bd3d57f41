"""`python -m tests.mutants`: how many seeded faults the tests find, a room each.

Each mutant is a copy of the source with one change. Against it run the tests of its room, the
likeliest first, until one fails: those of the same name as the mutated file, then the others by
what they take. A mutant is found if a test fails, hangs or cannot be collected. The rooms' tests
run without a mutant first; they have to pass, and tell how long each file takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dayfly"
#: A room of the house, and the folders of its own tests.
ROOMS = {
    "wire": ["wire", "channels", "collectives", "pipelines", "segments", "store", "process_group"],
    "life": ["life", "platforms"],
    "planning": ["planning", "choose"],
    "catalogue": ["catalogue"],
}
#: A file may take so many times what it took without a mutant, and some seconds, until it hangs.
_SLOWER, _MORE_S = 5.0, 30.0
_TESTS = "not slow and not alone"


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    options.add_argument("--number", type=int, default=200, help="of mutants, in all rooms")
    options.add_argument("--seed", type=int, default=1, help="of which ones")
    options.add_argument("--rooms", default=",".join(ROOMS), help="with commas between")
    options.add_argument("--tests", default=_TESTS, help="which ones run, by their marks")
    options.add_argument("--output", type=Path, help="of a JSON line each mutant; goes on with it")
    asked = options.parse_args()
    rooms = asked.rooms.split(",")
    known = {}
    if asked.output and asked.output.exists():
        rows = map(json.loads, asked.output.read_text().splitlines())
        known = {(row["file"], row["line"], row["change"]): row for row in rows}
    found: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="dayfly-mutants-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        seconds: dict[str, dict[Path, float]] = {}
        for room, file, mutant in chosen(rooms, asked.number, asked.seed):
            name = str(file.relative_to(ROOT))
            row = known.get((name, mutant.line, str(mutant)))
            if row is None:
                if room not in seconds:
                    seconds[room] = undisturbed(room, copy, asked.tests)
                by = found_by(file, mutant, seconds[room], copy, asked.tests)
                row = {"file": name, "line": mutant.line, "change": str(mutant), "by": by}
                if asked.output:
                    with asked.output.open("a") as log:
                        print(json.dumps(row), file=log)
            tried[room] += 1
            found[room] += row["by"] is not None
            print(f"{name}:{mutant.line}: {mutant}: {row['by'] or 'NOT FOUND'}", flush=True)
    for room in rooms:
        print(f"{room:10} {found[room]:4} of {tried[room]:4}")
    print(f"{'all':10} {found.total():4} of {tried.total():4}")
    return 0


def chosen(rooms: Sequence[str], number: int, seed: int) -> list[tuple[str, Path, Mutant]]:
    """Mutants of the rooms, spread as their lines are; the same for the same source and seed."""
    every = [
        (room, file, mutant)
        for room in sorted(rooms)
        for file in sorted((SOURCE / room).rglob("*.py"))
        if not file.stem.startswith("conformance")  # they are tests
        for mutant in mutants(file.read_text())
    ]
    picked = random.Random(seed).sample(range(len(every)), min(number, len(every)))
    return [every[i] for i in sorted(picked)]


def undisturbed(room: str, copy: Path, marks: str) -> dict[Path, float]:
    """Seconds of each of a room's test files, without a mutant."""
    files = [file for name in ROOMS[room] for file in (ROOT / "tests" / name).rglob("test_*.py")]
    code, text = tests(files, copy, 3600.0, marks, "--durations=0", "--durations-min=0.001")
    if code:
        sys.exit(f"the tests of {room} fail without a mutant:\n{text[-3000:]}")
    taken: defaultdict[str, float] = defaultdict(float)
    for line_s, where in re.findall(r"^([0-9.]+)s \w+ +([^:]+)::", text, re.MULTILINE):
        taken[where] += float(line_s)
    return {file: taken[str(file.relative_to(ROOT))] for file in files}


def found_by(
    file: Path, mutant: Mutant, seconds: dict[Path, float], copy: Path, marks: str
) -> str | None:
    """The test that fails of a mutant; None if there is none."""
    mutated = copy / "dayfly" / file.relative_to(SOURCE)
    text = file.read_text()
    mutated.write_text(mutant.applied(text))
    try:
        names = {file.stem, file.parent.name}
        likely = [one for one in seconds if any(name in one.stem for name in names)]
        likely.sort(key=lambda one: (file.stem not in one.stem, seconds[one]))
        rest = sorted(set(seconds) - set(likely), key=lambda one: (seconds[one], one))
        for some in (likely, rest):
            limit_s = _MORE_S + _SLOWER * sum(seconds[one] for one in some)
            if not some:
                continue
            code, said = tests(some, copy, limit_s, marks, "-x")
            if code:
                last = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
                return last[0] if last else f"exit code {code}"
        return None
    finally:
        mutated.write_text(text)


def tests(
    files: Sequence[Path], copy: Path, limit_s: float, marks: str, *flags: str
) -> tuple[int, str]:
    """pytest's exit code over the copy, in this order, and what it says; -1 after the limit."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += [*flags, "-m", marks, *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
            process.wait()
        output.seek(0)
        return code, output.read()


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"in {(time.monotonic() - began) / 60:.0f} minutes")
    sys.exit(code)
