"""A soak from the command line; exit code 1, and the runs in question kept, if one went wrong."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from tests.soak.plan import plans
from tests.soak.soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the plan (random)")
    parser.add_argument("--run", type=int, default=None, help="only the run of this number")
    given = parser.parse_args()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    directory = Path(tempfile.mkdtemp(prefix="dayfly-soak-"))
    again = f"python -m tests.soak --seed {seed}"
    _say(f"{again} --minutes {given.minutes:g}: runs in {directory}")
    soak = Soak(directory, _say)
    first, last = (0, None) if given.run is None else (given.run, given.run + 1)
    began = time.monotonic()
    soak.carry_out(
        islice(plans(seed), first, last),
        until=began + 60 * given.minutes,
        at_least=0 if given.run is None else 1,
    )
    soak.close()
    _say(f"\nseed {seed}, {(time.monotonic() - began) / 60:.1f} minutes\n{soak.summary.table()}")
    if soak.summary.failures:
        _say(f"kept: {directory}; one run again: {again} --run NUMBER")
        return 1
    shutil.rmtree(directory)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
