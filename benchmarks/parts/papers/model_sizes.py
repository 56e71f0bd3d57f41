"""The sizes of models that the papers' tables print, beside those of dayfly's models.

The papers' full names are in docs/errata.md. A size in "MB" is mostly 2^20 bytes, as FuncPipe's
published profiler has it; each figure says what its unit turned out to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from dayfly.models import (
    MODELS,
    alexnet,
    bert_base,
    on_meta,
    parameters_of,
    resnet34,
    resnet152,
    vgg16,
)

Build = Callable[[], nn.Sequential]
Unit = Literal["thousand", "million", "MB", "MiB"]
#: Of parameters, or of bytes.
UNITS: dict[Unit, int] = {"thousand": 10**3, "million": 10**6, "MB": 10**6, "MiB": 2**20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A size that a paper's table gives, and ours.

    Args:
        model: its name in `dayfly.models.MODELS`.
        where: the paper and its table.
        printed: the number as it stands there.
        unit: of what: of parameters, in thousands or millions, or of their bytes in float32.
        ours: the same of our model, to as many digits.
        build: the model that is counted, where it is not the table's own.
        count: how many of its parameters are counted.
        note: which form of the model it is, or why the figure is not reached.
    """

    model: str
    where: str
    printed: str
    unit: Unit
    ours: str
    build: Build | None = None
    count: Callable[[nn.Sequential], int] = parameters_of
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether ours agrees, within the digits that are printed."""
        return self.ours == self.printed

    def measure(self) -> str:
        """The size of the model that is counted, to as many digits as are printed."""
        counted = self.count(on_meta(self.build or MODELS[self.model].build))
        size = counted * (4 if self.unit in ("MB", "MiB") else 1) / UNITS[self.unit]
        return f"{size:.{len(self.printed.partition('.')[2])}f}"


def _encoder(model: nn.Sequential) -> int:
    """BERT without embeddings and head."""
    return parameters_of(model[1:-1])


def _matrices(model: nn.Sequential) -> int:
    """BERT without biases and norms, the embedding of parts, and the head's scores."""
    return sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if weight.ndim == 2 and "parts" not in name and "scores" not in name
    )


_TEN = "ten classes"
_FASDL_1000 = "a thousand classes, though trained on CIFAR-10"

FIGURES = (
    Figure(
        model="lenet5",
        where="KubeML, table 4.1",
        printed="44",
        unit="thousand",
        ours="44",
        note="28x28, not padded",
    ),
    Figure(
        model="alexnet",
        where="Hydrozoa, table 2",
        printed="57",
        unit="million",
        ours="57",
        build=partial(alexnet, 10),
        note=_TEN,
    ),
    Figure(
        model="resnet34",
        where="KubeML, table 4.1",
        printed="21",
        unit="million",
        ours="21",
        build=partial(resnet34, 10),
        note=_TEN,
    ),
    Figure(
        model="resnet34",
        where="Hydrozoa, table 2",
        printed="21.5",
        unit="million",
        ours="21.3",
        build=partial(resnet34, 10),
        note="not reached: ten classes, as trained",
    ),
    Figure(
        model="resnet50",
        where="FasDL, table II",
        printed="97.49",
        unit="MiB",
        ours="97.49",
        note=_FASDL_1000,
    ),
    Figure(model="resnet101", where="FuncPipe, table 1", printed="170", unit="MiB", ours="170"),
    Figure(
        model="resnet152",
        where="Hydrozoa, table 2",
        printed="58.5",
        unit="million",
        ours="58.2",
        build=partial(resnet152, 10),
        note="not reached: ten classes, as trained",
    ),
    Figure(
        model="resnet32", where="KubeML, table 4.1", printed="0.46", unit="million", ours="0.46"
    ),
    Figure(
        model="resnet50_32",
        where="CE-scaling, section IV-A",
        printed="89",
        unit="MiB",
        ours="90",
        note="not reached by rounding: 89.7, cut",
    ),
    Figure(
        model="vgg16",
        where="KubeML, table 4.1",
        printed="134",
        unit="million",
        ours="134",
        build=partial(vgg16, 10),
        note=_TEN,
    ),
    Figure(
        model="vgg19",
        where="Hydrozoa, table 2",
        printed="143.7",
        unit="million",
        ours="143.7",
        note=_FASDL_1000,
    ),
    Figure(
        model="mobilenet_v1_32",
        where="CE-scaling, section IV-A",
        printed="12",
        unit="MiB",
        ours="12",
    ),
    Figure(
        model="mobilenet_v2",
        where="FasDL, table II",
        printed="13.37",
        unit="MiB",
        ours="13.37",
        note=_FASDL_1000,
    ),
    Figure(
        model="squeezenet",
        where="FasDL, table II",
        printed="4.71",
        unit="MiB",
        ours="4.71",
        note=f"version 1.1; {_FASDL_1000}",
    ),
    Figure(
        model="amoebanet_d18",
        where="FuncPipe, table 1",
        printed="476",
        unit="MiB",
        ours="467",
        note="not reached: perhaps two digits exchanged",
    ),
    Figure(
        model="amoebanet_d36",
        where="FuncPipe, table 1",
        printed="900",
        unit="MiB",
        ours="901",
        note="not reached: perhaps rounded to two digits",
    ),
    Figure(
        model="bert_base",
        where="Hydrozoa, table 2",
        printed="108.9",
        unit="million",
        ours="108.9",
        build=partial(bert_base, "answers"),
        note="with the head for answers",
    ),
    Figure(
        model="bert_base",
        where="FasDL, table II",
        printed="417.17",
        unit="MiB",
        ours="417.17",
        count=_matrices,
        note="the matrices alone, without that of parts; 417.65 in all",
    ),
    Figure(
        model="bert_base",
        where="CE-scaling, section IV-A",
        printed="340",
        unit="MB",
        ours="340",
        count=_encoder,
        note="the encoder layers alone; 437.9 in all",
    ),
    Figure(
        model="bert_large",
        where="FuncPipe, table 1",
        printed="1153",
        unit="MiB",
        ours="1153",
        count=_encoder,
        note="the encoder layers alone; 1278.5 in all",
    ),
)
