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

from tests.soak.budgets import budgets
from tests.soak.plan import plans
from tests.soak.soak import Soak
from tests.warm import popen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the plan (random)")
    parser.add_argument("--run", type=int, default=None, help="only the run of this number")
    parser.add_argument(
        "--events",
        type=int,
        help="in place of that, one run with so many resizes, kills, hand-overs and coordinator "
        "kills",
    )
    parser.add_argument(
        "--budgets", type=int, help="in place of that, so many runs under random budgets and deaths"
    )
    parser.add_argument(
        "--at-once", type=int, default=3, help="runs under budgets at once (%(default)s)"
    )
    given = parser.parse_args()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    directory = Path(tempfile.mkdtemp(prefix="dayfly-soak-"))
    again = f"python -m tests.soak --seed {seed}"
    soak = Soak(directory, _say)
    began = time.monotonic()
    first, last = (0, None) if given.run is None else (given.run, given.run + 1)
    if given.events is not None:
        _say(f"{again} --events {given.events}: {directory}")
        popen.install()  # programs start at once, which is most of the time otherwise
        soak.events(seed, given.events)
    elif given.budgets is not None:
        again += f" --budgets {given.budgets}"
        _say(f"{again}: runs in {directory}")
        popen.install()
        soak.budgets(islice(budgets(seed), first, last or given.budgets), at_once=given.at_once)
    else:
        _say(f"{again} --minutes {given.minutes:g}: runs in {directory}")
        soak.carry_out(
            islice(plans(seed), first, last),
            until=began + 60 * given.minutes,
            at_least=0 if given.run is None else 1,
        )
    soak.close()
    _say(f"\nseed {seed}, {(time.monotonic() - began) / 60:.1f} minutes\n{soak.summary.table()}")
    if soak.summary.failures:
        one = "" if given.events is not None else f"; one run again: {again} --run NUMBER"
        _say(f"kept: {directory}{one}")
        return 1
    shutil.rmtree(directory)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
