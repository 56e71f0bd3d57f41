"""What evaluations of a run found and took: `evaluations/<id>.json` in its directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayfly.dataclass_json import Name, Real, UnixSeconds, dump, read
from dayfly.json_files import parse, read_bytes
from dayfly.runs.whole_files import replacing

FOLDER = "evaluations"
TEST, PREDICT = "test", "predict"
_LARGEST_BYTES = 2**20
_REMEDY = "remove the file, or test again"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """One evaluation.

    Args:
        id: of the evaluation.
        kind: "test" or "predict".
        at: when it was asked for, in Unix seconds.
        samples: that were evaluated.
        workers: functions at once.
        restarts: deaths of functions.
        total_s: from the call to the end of the functions.
        billed_s: billed seconds of all functions.
        gb_s: GB-seconds of all functions.
        cost_usd: dollars under `price_list`.
        price_list: the platform whose prices count.
        values: of a test, loss and metrics by name.
    """

    id: Name
    kind: str
    at: UnixSeconds
    samples: int
    workers: int
    restarts: int
    total_s: float
    billed_s: float
    gb_s: float
    cost_usd: float
    price_list: str | None
    values: Mapping[str, Real | None] | None = None

    def save(self, directory: Path) -> None:
        """Writes it into a run's directory, whole or not at all."""
        folder = directory / FOLDER
        folder.mkdir(exist_ok=True, mode=0o700)
        with replacing(folder / f"{self.id}.json") as beside:
            beside.write_text(json.dumps(dump(self), indent=1))

    def words(self) -> str:
        """`tested 450 samples on 4 workers in 2.1 s, $0.000031 as on aws-lambda`."""
        did = "tested" if self.kind == TEST else "predicted"
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return (
            f"{did} {self.samples} samples on {workers} in {self.total_s:.1f} s, "
            f"${self.cost_usd:.6f} as on {self.price_list}"
        )


def read_evaluations(directory: Path) -> list[dict[str, Any]]:
    """Returns a run's evaluations as dicts, the latest last. Raises RequestError for damage."""
    files = sorted((directory / FOLDER).glob("*.json"))
    found = [
        read(
            EvaluationRecord,
            parse(read_bytes(file, _LARGEST_BYTES), str(file), _REMEDY),
            str(file),
            remedy=_REMEDY,
        )
        for file in files
    ]
    return [dump(one) for one in sorted(found, key=lambda one: one.at)]
