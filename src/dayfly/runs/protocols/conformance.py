"""The tests that every protocol passes: derive from `ProtocolConformance` and give it a case.

    class TestMine(ProtocolConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def case(cls):
            return ProtocolCase(MINE, settings={"k": 4})

A small model is trained by two workers: once undisturbed, and once with deaths in the first of two
epochs, and a resume for the second. Functions import the protocol by its name, so it is an entry
point of an installed package by then. pytest is needed here alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from dayfly.job import Job
from dayfly.life.faults import Fault
from dayfly.runs.api import resume, train
from dayfly.runs.protocols import protocol
from dayfly.runs.protocols.base import WholeModel
from dayfly.runs.run import Run
from dayfly.specs.protocols import PROTOCOLS, Part, ProtocolDescription
from dayfly.specs.streaming import Streaming

WORKERS, EPOCHS, STEPS_AN_EPOCH, BATCH = 2, 2, 6, 16
_FEATURES, _HIDDEN, _CLASSES = 64, 256, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolCase:
    """A protocol that is tested.

    Args:
        described: its description, registered under its name; with `outer`, `fragments` or
            `overlap` among the settings, what these make of it.
        settings: of the runs, such as `k`; see `dayfly.runs.settings.Settings`.
        points: of a round, where workers are killed, by the message that is sent there.
    """

    described: ProtocolDescription
    settings: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[str, ...] = ("grad-put-part", "grad-put-sum", "grad-get")

    @property
    def rounds(self) -> list[int]:
        """First steps of the rounds of an epoch, whose last round may be shorter."""
        k = self.settings.get("k")
        length = self.described.steps(k if isinstance(k, int) else None) or STEPS_AN_EPOCH
        return list(range(0, STEPS_AN_EPOCH, length))


def model() -> nn.Module:
    """Dropout draws random numbers, whose state a successor has to have."""
    return nn.Sequential(
        nn.Linear(_FEATURES, _HIDDEN), nn.ReLU(), nn.Dropout(0.1), nn.Linear(_HIDDEN, _CLASSES)
    )


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    """With a state as large as the parameters."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def data() -> tuple[TensorDataset, TensorDataset]:
    """Noisy clusters, one for each class."""
    generator = torch.Generator().manual_seed(5)
    samples = BATCH * STEPS_AN_EPOCH
    y = torch.arange(samples + BATCH) % _CLASSES
    centres = torch.randn(_CLASSES, _FEATURES, generator=generator)
    x = centres[y] + 0.5 * torch.randn(len(y), _FEATURES, generator=generator)
    return TensorDataset(x[:samples], y[:samples]), TensorDataset(x[samples:], y[samples:])


def _trained(case: ProtocolCase, directory: Path, epochs: int, **more: Any) -> Run:
    job = Job(
        model=model,
        data=data,
        loss=nn.functional.cross_entropy,
        optimizer=optimizer,
        batch_size=BATCH,
        epochs=epochs,
    )
    settings = {"workers": WORKERS, "collective": "scatter-reduce", **case.settings}
    return train(
        job, sync=case.described.name, run_dir=directory, progress=False, **settings, **more
    )


def _history(run: Run) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((run.directory / "history.json").read_text())
    return whole


class ProtocolConformance:
    """What is promised by a `ProtocolDescription` and its `WholeModel`, one test a promise."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> ProtocolCase:
        """The protocol that is tested."""
        raise NotImplementedError("give the suite a protocol: override this fixture")

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, case: ProtocolCase, tmp_path_factory: pytest.TempPathFactory) -> Run:
        """A run with nothing in its way."""
        return _trained(case, tmp_path_factory.mktemp("undisturbed"), EPOCHS)

    def test_what_is_described_can_be_carried_out(self, case: ProtocolCase) -> None:
        described = case.described
        asked = {name: case.settings.get(name) for name in ("outer", "fragments", "overlap")}
        streaming = Streaming.of(asked["fragments"], asked["overlap"])
        assert PROTOCOLS[described.name].by(asked["outer"], streaming) == described
        assert issubclass(protocol(described), WholeModel)
        assert described.exchanges
        assert len([one for one in described.exchanges if not one.every_step]) <= 1
        k = case.settings.get("k")
        assert described.refuses(k=k, compress="none", cut=False) is None

    def test_it_learns_and_tells_of_every_step(self, case: ProtocolCase, undisturbed: Run) -> None:
        assert undisturbed.result.status == "done"
        assert undisturbed.result.steps == EPOCHS * STEPS_AN_EPOCH
        first, *_, last = undisturbed.history
        assert len(undisturbed.history) == EPOCHS
        assert last["train_loss"] < first["train_loss"]
        assert last["val_accuracy"] > 1.5 / _CLASSES
        losses = _history(undisturbed)["step_loss"]
        assert len(losses) == EPOCHS * STEPS_AN_EPOCH
        assert sum(losses[:STEPS_AN_EPOCH]) / STEPS_AN_EPOCH == pytest.approx(first["train_loss"])

    def test_workers_sum_what_is_described(self, case: ProtocolCase, undisturbed: Run) -> None:
        """Predictions go by the description, so it has to be true.

        By scatter-reduce each of two workers puts half of its buffer, and half of the sum.
        """
        parameters = sum(one.numel() for one in model().parameters())
        elements = dict.fromkeys(Part, parameters) | {Part.BUFFERS: 0}
        expected = sum(
            4 * elements[part] * (STEPS_AN_EPOCH if one.every_step else len(case.rounds)) * EPOCHS
            for one in case.described.exchanges
            for part in one.parts
        )
        for rank in range(WORKERS):
            lines = (undisturbed.directory / "events" / f"worker-{rank}.jsonl").read_text()
            told = [json.loads(line) for line in lines.splitlines()]
            moved = [record["bytes_up"] for record in told if record["kind"] == "traffic"]
            # Validation, reports and headers come on top of it.
            assert moved[-1] == pytest.approx(expected, rel=0.15), f"rank {rank}"

    def test_deaths_and_a_resume_leave_the_same_bits(
        self, case: ProtocolCase, undisturbed: Run, tmp_path: Path
    ) -> None:
        """Each worker dies in a round and catches up; a checkpoint is written and read again."""
        faults = [
            Fault(number % WORKERS, case.rounds[-1 - number % len(case.rounds)], point)
            for number, point in enumerate(case.points)
        ]
        first = _trained(case, tmp_path, 1, faults=faults)
        assert first.result.restarts == len(faults), "each death happened, once"
        run = resume(tmp_path, epochs=EPOCHS, progress=False)
        found, expected = _history(run), _history(undisturbed)
        if case.described.own:  # whoever catches up computes its rounds again
            expected["redone_steps"] = found["redone_steps"]
        assert found == expected
        weights = [one.directory / "weights.safetensors" for one in (run, undisturbed)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
