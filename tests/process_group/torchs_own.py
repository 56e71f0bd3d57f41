"""torch's own tests of torch.distributed, as its wheel ships them, over gloo or over dayfly.

    python -m tests.process_group.torchs_own gloo|dayfly [--only TEST ...] [--results FILE]

Each test runs in three processes, which are forked from this one. The results are one JSON object:
the name of each test to `ok`, `skipped`, or the last lines of what it failed with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RANKS = 3
#: Longest time of one test, in seconds.
LONGEST_S = 120
#: What a failure is told by, in characters.
_TOLD = 1500


def tests(backend: str) -> type[unittest.TestCase]:
    """The class of torch's tests, to be run over a backend; environment variables are set."""
    os.environ |= {
        "BACKEND": "gloo",  # by which tests choose themselves
        "WORLD_SIZE": str(RANKS),
        "TEMP_DIR": tempfile.mkdtemp(),
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(LONGEST_S),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    import torch
    from torch.testing._internal.distributed import distributed_test as torchs

    torch.set_num_threads(1)

    class TestBackend(torchs.TestDistBackend, torchs.DistributedTest._DistTestBase):
        """torch's, in forked processes."""

        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank: int, *args: Any, **kwargs: Any) -> None:
            if backend == "gloo":
                super()._run(rank, *args, **kwargs)
                return
            from dayfly.runs.scripts.environment import Wiring

            with Wiring(rank, RANKS, None).connected():
                super()._run(rank, *args, **kwargs)

    return TestBackend


class _Result(unittest.TestResult):
    """Notes what became of each test."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.found[_name(test)] = "ok"

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        name = _name(test)
        print(f"{name}: {self.found[name].splitlines()[-1]}", file=sys.stderr, flush=True)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.found[_name(test)] = "skipped"

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.found[_name(test)] = self._exc_info_to_string(err, test).strip()[-_TOLD:]

    addFailure = addError


def _name(test: unittest.TestCase) -> str:
    return test.id().rpartition(".")[2]


def run(backend: str, only: Sequence[str] = ()) -> dict[str, str]:
    """Runs torch's tests over a backend, all or some; name to what became of it."""
    kind = tests(backend)
    names = list(only) or unittest.TestLoader().getTestCaseNames(kind)
    result = _Result()
    unittest.TestSuite(kind(name) for name in names).run(result)
    return result.found


def main() -> None:
    """Runs them, and writes the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=("gloo", "dayfly"))
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    found = run(given.backend, given.only)
    text = json.dumps(found, indent=1)
    if given.results is None:
        print(text)
    else:
        given.results.write_text(text)


if __name__ == "__main__":
    main()
