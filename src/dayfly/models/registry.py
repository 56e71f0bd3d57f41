"""The table of models: what they take and give, and what the papers' tables say of their sizes.

The papers' full names are in docs/errata.md. A size in "MB" is mostly 2^20 bytes, as FuncPipe's
published profiler has it; each figure says what its unit turned out to be.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from dayfly.models.alexnet import alexnet
from dayfly.models.amoebanet_d import amoebanet_d18, amoebanet_d36
from dayfly.models.bert import bert_base, bert_large
from dayfly.models.digits_cnn import digits_cnn
from dayfly.models.entry import Entry, Figure, parameters_of
from dayfly.models.lenet5 import lenet5
from dayfly.models.mobilenet import mobilenet_v1, mobilenet_v1_32, mobilenet_v2
from dayfly.models.resnet import (
    resnet18,
    resnet18_32,
    resnet32,
    resnet34,
    resnet50,
    resnet50_32,
    resnet101,
    resnet152,
)
from dayfly.models.squeezenet import squeezenet
from dayfly.models.vgg import vgg16, vgg19
from dayfly.models.wide_mlp import wide_mlp


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


_COLOUR_224, _COLOUR_32 = (3, 224, 224), (3, 32, 32)
_TEN = "ten classes"
_FASDL_1000 = "a thousand classes, though trained on CIFAR-10"

#: By name. A new model is a new line.
MODELS: dict[str, Entry] = {
    "digits_cnn": Entry(build=digits_cnn, sample_shape=(1, 8, 8), scores=10),
    "wide_mlp": Entry(build=wide_mlp, sample_shape=(1024,), scores=10),
    "lenet5": Entry(
        build=lenet5,
        sample_shape=(1, 28, 28),
        scores=10,
        figures=(
            Figure(
                where="KubeML, table 4.1",
                printed="44",
                unit="thousand",
                ours="44",
                note="28x28, not padded",
            ),
        ),
    ),
    "alexnet": Entry(
        build=alexnet,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="Hydrozoa, table 2",
                printed="57",
                unit="million",
                ours="57",
                build=partial(alexnet, 10),
                note=_TEN,
            ),
        ),
    ),
    "resnet18": Entry(build=resnet18, sample_shape=_COLOUR_224, scores=1000),
    "resnet34": Entry(
        build=resnet34,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="KubeML, table 4.1",
                printed="21",
                unit="million",
                ours="21",
                build=partial(resnet34, 10),
                note=_TEN,
            ),
            Figure(
                where="Hydrozoa, table 2",
                printed="21.5",
                unit="million",
                ours="21.3",
                build=partial(resnet34, 10),
                note="not reached: ten classes, as trained",
            ),
        ),
    ),
    "resnet50": Entry(
        build=resnet50,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="FasDL, table II",
                printed="97.49",
                unit="MiB",
                ours="97.49",
                note=_FASDL_1000,
            ),
        ),
    ),
    "resnet101": Entry(
        build=resnet101,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(Figure(where="FuncPipe, table 1", printed="170", unit="MiB", ours="170"),),
    ),
    "resnet152": Entry(
        build=resnet152,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="Hydrozoa, table 2",
                printed="58.5",
                unit="million",
                ours="58.2",
                build=partial(resnet152, 10),
                note="not reached: ten classes, as trained",
            ),
        ),
    ),
    "resnet18_32": Entry(build=resnet18_32, sample_shape=_COLOUR_32, scores=10),
    "resnet32": Entry(
        build=resnet32,
        sample_shape=_COLOUR_32,
        scores=10,
        figures=(Figure(where="KubeML, table 4.1", printed="0.46", unit="million", ours="0.46"),),
    ),
    "resnet50_32": Entry(
        build=resnet50_32,
        sample_shape=_COLOUR_32,
        scores=10,
        figures=(
            Figure(
                where="CE-scaling, section IV-A",
                printed="89",
                unit="MiB",
                ours="90",
                note="not reached by rounding: 89.7, cut",
            ),
        ),
    ),
    "vgg16": Entry(
        build=vgg16,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="KubeML, table 4.1",
                printed="134",
                unit="million",
                ours="134",
                build=partial(vgg16, 10),
                note=_TEN,
            ),
        ),
    ),
    "vgg19": Entry(
        build=vgg19,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="Hydrozoa, table 2",
                printed="143.7",
                unit="million",
                ours="143.7",
                note=_FASDL_1000,
            ),
        ),
    ),
    "mobilenet_v1": Entry(build=mobilenet_v1, sample_shape=_COLOUR_224, scores=1000),
    "mobilenet_v1_32": Entry(
        build=mobilenet_v1_32,
        sample_shape=_COLOUR_32,
        scores=10,
        figures=(Figure(where="CE-scaling, section IV-A", printed="12", unit="MiB", ours="12"),),
    ),
    "mobilenet_v2": Entry(
        build=mobilenet_v2,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="FasDL, table II",
                printed="13.37",
                unit="MiB",
                ours="13.37",
                note=_FASDL_1000,
            ),
        ),
    ),
    "squeezenet": Entry(
        build=squeezenet,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="FasDL, table II",
                printed="4.71",
                unit="MiB",
                ours="4.71",
                note=f"version 1.1; {_FASDL_1000}",
            ),
        ),
    ),
    "amoebanet_d18": Entry(
        build=amoebanet_d18,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="FuncPipe, table 1",
                printed="476",
                unit="MiB",
                ours="467",
                note="not reached: perhaps two digits exchanged",
            ),
        ),
    ),
    "amoebanet_d36": Entry(
        build=amoebanet_d36,
        sample_shape=_COLOUR_224,
        scores=1000,
        figures=(
            Figure(
                where="FuncPipe, table 1",
                printed="900",
                unit="MiB",
                ours="901",
                note="not reached: perhaps rounded to two digits",
            ),
        ),
    ),
    "bert_base": Entry(
        build=bert_base,
        sample_shape=(128,),
        sample_type=torch.int64,
        scores=2,
        figures=(
            Figure(
                where="Hydrozoa, table 2",
                printed="108.9",
                unit="million",
                ours="108.9",
                build=partial(bert_base, "answers"),
                note="with the head for answers",
            ),
            Figure(
                where="FasDL, table II",
                printed="417.17",
                unit="MiB",
                ours="417.17",
                count=_matrices,
                note="the matrices alone, without that of parts; 417.65 in all",
            ),
            Figure(
                where="CE-scaling, section IV-A",
                printed="340",
                unit="MB",
                ours="340",
                count=_encoder,
                note="the encoder layers alone; 437.9 in all",
            ),
        ),
    ),
    "bert_large": Entry(
        build=bert_large,
        sample_shape=(128,),
        sample_type=torch.int64,
        scores=2,
        figures=(
            Figure(
                where="FuncPipe, table 1",
                printed="1153",
                unit="MiB",
                ours="1153",
                count=_encoder,
                note="the encoder layers alone; 1278.5 in all",
            ),
        ),
    ),
}
