"""Made-up runs of a pipeline: when its passes happen follows from its schedule, by a small loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.report import made_up

Json = dict[str, Any]
Work = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A pipeline; milliseconds of one micro-batch. Stages send a micro-batch in transfer_ms."""

    forward_ms: Sequence[float] = (10.0, 20.0, 10.0)
    backward_ms: Sequence[float] = (20.0, 40.0, 20.0)
    transfer_ms: float = 0.0
    apply_ms: float = 0.0
    micro_batches: int = 4
    replicas: int = 1
    schedule: str = "fill-drain"
    cut: tuple[int, ...] = (4, 9)

    @property
    def settings(self) -> Json:
        """As run.json has them."""
        return {
            "workers": len(self.forward_ms) * self.replicas,
            "cut": list(self.cut),
            "replicas": self.replicas,
            "micro_batches": self.micro_batches,
            "schedule": self.schedule,
            "stage_memory_mib": [1024 * (n % 2 + 1) for n in range(len(self.forward_ms))],
            "memory_mib": None,
        }

    def order(self, stage: int) -> list[Work]:
        """The passes of a stage, in order."""
        forward = [("f", n) for n in range(self.micro_batches)]
        backward = [("b", n) for n in range(self.micro_batches)]
        if self.schedule == "fill-drain":
            return forward + backward
        ahead = min(len(self.forward_ms) - stage, self.micro_batches)
        order = forward[:ahead]
        for n in range(self.micro_batches):
            order += [backward[n], *forward[ahead + n : ahead + n + 1]]
        return order

    def passes(self) -> list[list[tuple[str, int, float, float]]]:
        """By stage, [what, micro-batch, from, to] in milliseconds of a step."""
        last = len(self.forward_ms) - 1
        orders = [self.order(stage) for stage in range(last + 1)]
        ended: dict[tuple[int, str, int], float] = {}
        found: list[list[tuple[str, int, float, float]]] = [[] for _ in orders]
        while any(orders):
            for stage, order in enumerate(orders):
                if not order:
                    continue
                what, number = order[0]
                if what == "f":
                    before = (stage - 1, "f", number) if stage else None
                else:
                    before = (stage + 1, "b", number) if stage < last else None
                if before is not None and before not in ended:
                    continue
                order.pop(0)
                came = 0.0 if before is None else ended[before] + self.transfer_ms
                start = max(came, found[stage][-1][3] if found[stage] else 0.0)
                taken = (self.forward_ms if what == "f" else self.backward_ms)[stage]
                ended[stage, what, number] = start + taken
                found[stage].append((what, number, start, start + taken))
        return found

    def spans(self, stage: int, passes: Sequence[tuple[str, int, float, float]]) -> Json:
        """What a worker of a stage tells of a step beside its passes."""
        last = len(self.forward_ms) - 1
        told: dict[str, list[list[float]]] = {"forward": [], "backward": []}
        for what, _, start, end in passes:
            told["forward" if what == "f" else "backward"].append([start, end])
            sends = stage < last if what == "f" else stage > 0
            gets = stage > 0 if what == "f" else stage < last
            if sends and self.transfer_ms:
                told.setdefault("upload", []).append([end, end + self.transfer_ms])
            if gets and self.transfer_ms:
                told.setdefault("download", []).append([start - self.transfer_ms, start])
        end = passes[-1][3]
        if self.apply_ms:
            told["apply"] = [[end, end + self.apply_ms]]
        return told

    def record(self, began: float, number: int, stage: int, *, attempt: int = 0) -> Json:
        """A "step" record."""
        by_stage = self.passes()
        seconds = (max(passes[-1][3] for passes in by_stage) + self.apply_ms) / 1000
        spans = self.spans(stage, by_stage[stage])
        record = made_up.step(began, number, seconds, spans, attempt=attempt)
        return {**record, "passes": [list(one) for one in by_stage[stage]]}

    def write(self, directory: Path, steps: int = 6) -> Path:
        """A run of so many steps; the last worker dies before the last two of them."""
        coordinator, records = [], {}
        length = self.record(0.0, 0, 0)["step_s"]
        stages = len(self.forward_ms)
        first = made_up.BEGAN + 1
        died = first + (steps - 2) * length
        end = first + steps * length + 0.5
        for rank in range(stages * self.replicas):
            stage = rank // self.replicas
            coordinator.append(made_up.invoked(made_up.BEGAN, rank))
            dies = rank == stages * self.replicas - 1
            records[rank] = [
                self.record(
                    first + n * length + 0.5 * (n >= steps - 2),
                    n,
                    stage,
                    attempt=int(dies and n >= steps - 2),
                )
                for n in range(steps)
            ]
            if dies:
                coordinator.append(
                    made_up.ended(died, rank, init_s=0.2, run_s=died - made_up.BEGAN - 0.2)
                )
                coordinator.append(made_up.invoked(died + 0.1, rank, 1))
            began = died + 0.1 if dies else made_up.BEGAN
            coordinator.append(
                made_up.ended(
                    end, rank, int(dies), init_s=0.2, run_s=end - began - 0.2, status="done"
                )
            )
        coordinator.sort(key=lambda event: event["at"])
        history = {"epochs": [], "step_loss": [2.0 - n / steps for n in range(steps)]}
        return made_up.write(
            directory, coordinator, records, record={"settings": self.settings}, history=history
        )
