"""The programs that are measured, by name: what each is made of, in every process alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.parts.programs import Program
from benchmarks.parts.programs.after_backward import AfterBackward, How
from benchmarks.parts.programs.data_parallel import DataParallel
from benchmarks.parts.programs.fully_sharded import FullySharded
from benchmarks.parts.programs.one_number import OneNumber
from benchmarks.parts.programs.pipeline import Pipeline
from dayfly.models import wide_mlp
from dayfly.models.resnet import ResidualBlock

Made = TypeVar("Made")

_CLASSES = 10
#: So small that rounding does not grow: few samples a BatchNorm.
_LR = 0.001
_WIDTH, _TOKENS, _MICROBATCHES = 256, 32, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """make: called in each process of the default group. processes: numbers that it is for."""

    what: str
    processes: tuple[int, ...]
    make: Callable[[], Program]


def small_resnet(width: int = 32) -> nn.Sequential:
    """ResNet-18 for 32x32 images, half as wide: 2,797,610 parameters (11 MB)."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
    channels_in = width
    for times, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        layers.append(ResidualBlock(channels_in, times * width, stride))
        layers.append(ResidualBlock(times * width, times * width, 1))
        channels_in = times * width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, _CLASSES)
    )


class _Head(nn.Module):
    """x (B, tokens, width) -> scores (B, classes)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, _CLASSES)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(x_BTC.mean(1))
        return scores


def stack(layers: int) -> list[nn.Module]:
    """Layers of a transformer, 0.8 million parameters each; the last one has the head."""
    made: list[nn.Module] = [
        nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, dropout=0.0, batch_first=True)
        for _ in range(layers)
    ]
    made[-1] = nn.Sequential(made[-1], _Head(_WIDTH))
    return made


def samples(count: int, *shape: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Noise in random classes, another for each process: what is learnt does not matter here."""
    noise = torch.Generator().manual_seed(1 + dist.get_rank())
    x = torch.randn(count, *shape, generator=noise)
    return x.to(device), torch.randint(_CLASSES, (count,), generator=noise).to(device)


def _resnet(batch: int) -> Program:
    share = batch // dist.get_world_size()
    return DataParallel(_alike(small_resnet), *samples(share, 3, 32, 32), _LR)


def _mlp(batch: int) -> Program:
    return DataParallel(_alike(wide_mlp), *samples(batch // dist.get_world_size(), 1024), _LR)


def _pipeline(schedule: Literal["gpipe", "1f1b"], layers: int, microbatch: int) -> Program:
    return Pipeline(
        _alike(lambda: stack(layers)),
        *samples(_MICROBATCHES * microbatch, _TOKENS, _WIDTH),
        _LR,
        schedule=schedule,
        stages=2,
        microbatches=_MICROBATCHES,
    )


def _on_device(sharded: bool, device: str) -> Program:
    """The blocks of the pipeline, whole in every process."""
    model = _alike(lambda: nn.Sequential(*stack(8))).to(device)
    x, y = samples(DEVICE_SAMPLES[device], _TOKENS, _WIDTH, device=device)
    return (FullySharded if sharded else DataParallel)(model, x, y, _LR)


def overlap_name(how: How, images: int) -> str:
    """Of a program in which gradients are communicated so."""
    return f"{how}, {images} images"


def _communicated(how: How, images: int) -> Program:
    share = samples(images, 3, 32, 32)
    return AfterBackward(_alike(small_resnet), *share, _LR, how=how, bucket_mib=OVERLAP_BUCKET_MIB)


def _alike(make: Callable[[], Made]) -> Made:
    """The same weights in every process."""
    torch.manual_seed(0)
    return make()


#: Samples of each process, a step.
DEVICE_SAMPLES = {"cuda": 64, "cpu": 2}
#: So many that the backward pass takes about as long as sending over the slow store, 11 MB at 40
#: MB/s; few to see that it works. And buckets so small that there are several.
OVERLAP_IMAGES, OVERLAP_FEW_IMAGES, OVERLAP_BUCKET_MIB = 96, 4, 1.0

EXAMPLES = {
    "ddp-resnet": Example(
        what="DDP, ResNet-18 at half its width, 11 MB, 32 images",
        processes=(2, 4),
        make=partial(_resnet, 32),
    ),
    "ddp-wide-mlp": Example(
        what="DDP, wide MLP, 42 MB, 32 vectors", processes=(2, 4), make=partial(_mlp, 32)
    ),
    "gpipe": Example(
        what="6 transformer layers in 2 stages, 8 micro-batches of 4: GPipe",
        processes=(2,),
        make=partial(_pipeline, "gpipe", 6, 4),
    ),
    "1f1b": Example(what="the same, 1F1B", processes=(2,), make=partial(_pipeline, "1f1b", 6, 4)),
    "ddp-1f1b": Example(
        what="the same, 1F1B, twice, with DDP",
        processes=(4,),
        make=partial(_pipeline, "1f1b", 6, 4),
    ),
}
SMALL_EXAMPLES = {
    "one-float": Example(what="an all-reduce of one float", processes=(2, 4), make=OneNumber)
}
#: On a GPU, and the same on the processor, by which they are tested.
DEVICE_EXAMPLES = {
    device: {
        f"{name}-{device}": Example(
            what=f"{name} of 8 transformer layers, 25 MB, {count} samples a process",
            processes=(2, 4),
            make=partial(_on_device, name == "fsdp2", device),
        )
        for name in ("ddp", "fsdp2")
    }
    for device, count in DEVICE_SAMPLES.items()
}
#: By how gradients are communicated, and images of each process.
HOWS: tuple[How, ...] = (
    "ddp",
    "one by one",
    "all at once",
    "flat",
    "each gradient",
    "alone",
)
OVERLAP_EXAMPLES = {
    overlap_name(how, images): Example(
        what=f"the small ResNet, 11 MB, {images} images a process",
        processes=(2, 4),
        make=partial(_communicated, how, images),
    )
    for how in HOWS
    for images in (OVERLAP_IMAGES, OVERLAP_FEW_IMAGES)
}
ALL = {
    **EXAMPLES,
    **SMALL_EXAMPLES,
    **OVERLAP_EXAMPLES,
    **{name: one for by_name in DEVICE_EXAMPLES.values() for name, one in by_name.items()},
}
