"""The models that are trained in stages and whole, and the forms in which they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.parts.pipelines.scale import Scale, scale_for
from dayfly.data.npy_arrays import digits
from dayfly.job import Job
from dayfly.models import amoebanet_d, bert, cifar10, cola, digits_cnn, write_arrays
from dayfly.models.data import Pair, RowDataset

#: Names of the baselines, as FuncPipe has them (section 5.1); the first is what ratios are over.
LAMBDA_ML, LAMBDA_ML_GA, HYBRID_PS = "LambdaML", "LambdaML-GA", "HybridPS"
BASELINES = (LAMBDA_ML, LAMBDA_ML_GA, HYBRID_PS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to train a model: whole on each of `workers`, or cut, in `replicas` of each stage.

    memory_mib: of a function, stage by stage; found by `--peaks` (see `benchmarks/README.md`).
    micro_batches: of a worker. server: whether a parameter server sums, not a store.
    """

    name: str
    memory_mib: tuple[int, ...]
    workers: int = 0
    cut: tuple[int, ...] = ()
    replicas: int = 1
    micro_batches: int = 1
    schedule: str = "fill-drain"
    server: bool = False

    @property
    def functions(self) -> tuple[int, ...]:
        """The memory of each function."""
        times = self.replicas if self.cut else self.workers
        return tuple(size for size in self.memory_mib for _ in range(times))

    @property
    def what(self) -> str:
        """In words: workers, or stages x replicas, and their memory."""
        differ = len(set(self.memory_mib)) > 1
        sizes = "/".join(map(str, self.memory_mib if differ else self.memory_mib[:1]))
        micros = f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        if not self.cut:
            return f"{self.workers} x {sizes} MiB{micros}"
        return f"{len(self.cut) + 1} x {self.replicas} x {sizes} MiB{micros}, {self.schedule}"

    def settings(self) -> dict[str, Any]:
        """Of `dayfly.train`. LambdaML sums by scatter-reduce."""
        many = {"micro_batches": self.micro_batches}
        if self.cut:
            return {
                **many,
                "cut": self.cut,
                "replicas": self.replicas,
                "schedule": self.schedule,
                "stage_memory_mib": self.memory_mib,
            }
        (size,) = self.memory_mib
        how = {"channel": "ps://"} if self.server else {"collective": "scatter-reduce"}
        return {**many, **how, "workers": self.workers, "memory_mib": size}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, its data, and the forms that are compared.

    kind: what is large of it. data: so many samples. batch_size: of all functions together.
    """

    name: str
    kind: str
    model: Callable[[], nn.Module]
    data: Callable[[int], Pair]
    batch_size: int
    forms: tuple[Form, ...]
    steps: int = 5
    warm_steps: int = 2

    @property
    def scale(self) -> Scale:
        """With which the largest of the forms has its share of this machine."""
        return scale_for(max(sum(form.functions) for form in self.forms))

    def write_data(self, directory: Path) -> None:
        """The arrays, as a job takes them; few to validate with."""
        write_arrays(directory, self.data(self.batch_size * self.steps))

    def job(self, data: Path) -> Job:
        """What all forms train."""
        return Job(
            model=self.model,
            data=data,
            loss=nn.functional.cross_entropy,
            optimizer=_momentum,
            batch_size=self.batch_size,
        )

    def quick(self) -> Case:
        """A short form, to see that everything works."""
        return replace(self, steps=4, warm_steps=1)


def _momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.005, momentum=0.9)


def _digits(samples: int) -> Pair:
    """scikit-learn's digits, from the first on; again and again if they do not suffice."""
    whole = digits()
    rows = [row % len(whole["x_train"]) for row in range(samples)]
    train = RowDataset(whole["x_train"][rows], whole["y_train"][rows])
    return train, RowDataset(train.x[:32], train.y[:32])


def _baselines(workers: int, whole_mib: int, pieces_mib: int, pieces: int) -> tuple[Form, ...]:
    """whole_mib: what a function needs for its share at once; pieces_mib: in so many pieces."""
    whole, some = (whole_mib,), (pieces_mib,)
    return (
        Form(name=LAMBDA_ML, workers=workers, memory_mib=whole),
        Form(name=LAMBDA_ML_GA, workers=workers, memory_mib=some, micro_batches=pieces),
        Form(name=HYBRID_PS, workers=workers, memory_mib=whole, server=True),
    )


_TOKENS, _WORDS = 16, 2000

CASES = {
    case.name: case
    for case in (
        Case(
            name="amoebanet",
            kind="large activations",
            model=partial(amoebanet_d, 6, 96, 10),
            data=partial(cifar10, validation=8, size=64),
            batch_size=32,
            forms=(
                *_baselines(4, 544, 512, 4),
                # Layers take 3, 31, 17, 13 | 12, 13, 11, 11, 18 | 24, 34, 1 of 188.
                Form(name="3 stages", cut=(4, 9), memory_mib=(544,) * 3, micro_batches=8),
                Form(name="3 large stages", cut=(4, 9), memory_mib=(720,) * 3, micro_batches=8),
            ),
        ),
        Case(
            name="bert",
            kind="large parameters",
            model=partial(bert, layers=6, width=512, heads=8, vocabulary=_WORDS, positions=_TOKENS),
            data=partial(cola, validation=8, tokens=_TOKENS, vocabulary=_WORDS),
            batch_size=32,
            forms=(
                *_baselines(4, 720, 704, 8),
                # Two of the six large layers each.
                Form(name="3 stages", cut=(3, 5), memory_mib=(640, 608, 608), micro_batches=8),
                Form(name="3 large stages", cut=(3, 5), memory_mib=(896,) * 3, micro_batches=8),
            ),
        ),
        Case(
            name="digits",
            kind="small",
            model=digits_cnn,
            data=_digits,
            batch_size=64,
            forms=(
                *_baselines(4, 384, 384, 4),
                Form(name="2 stages", cut=(5,), memory_mib=(384, 384), micro_batches=4),
            ),
            steps=14,
            warm_steps=3,
        ),
    )
}
