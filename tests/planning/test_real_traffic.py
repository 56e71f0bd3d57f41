"""What real runs put and get is what was predicted, message by message and byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import LayerBytes, Profile
from dayfly.specs.streaming import Streaming
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.shaping import Rates
from tests.planning.by_hand import profile, size
from tests.runs import small

EPOCHS = 2
#: A report has a few records of a step each.
MOST_OF_A_REPORT = 20_000
AWS = Catalogue().platform("aws-lambda")


def linear(name: str, inputs: int, outputs: int) -> LayerBytes:
    """A linear layer of float32, whose outputs pass to the next."""
    elements = inputs * outputs + outputs
    return LayerBytes(
        name=name,
        parameters=4 * elements,
        trained=4 * elements,
        output=4 * outputs,
        gradient=4 * inputs if inputs != 12 else 0,
        tensors=(inputs * outputs, outputs),
    )


def activation(name: str, width: int) -> LayerBytes:
    return LayerBytes(
        name=name, parameters=0, trained=0, output=4 * width, gradient=4 * width, moving=0
    )


def normalised(name: str, width: int) -> LayerBytes:
    """BatchNorm: two parameters, and three buffers, one of which counts."""
    return LayerBytes(
        name=name,
        parameters=8 * width,
        trained=8 * width,
        buffers=8 * width + 8,
        output=4 * width,
        gradient=4 * width,
        tensors=(width, width),
        moving=2 * width + 1,
    )


#: `small.model`.
LAYERS = (
    linear("0", 12, 64),
    normalised("1", 64),
    activation("2", 64),
    activation("3", 64),
    linear("4", 64, 5),
)


def small_profile(*, limited: bool) -> Profile:
    rates = Rates(latency_s=0.002) if limited else None
    return profile(LAYERS, size(5, None, rates=rates), samples=180, validation_samples=20)


def messages(run: dayfly.Run, workers: int) -> tuple[list[dict[str, int]], list[int]]:
    """What each worker's counters say, without its reports; and how many those were."""
    counted, reports = [], []
    for rank in range(workers):
        records = small.events(run.directory, f"worker-{rank}")
        traffic = [record for record in records if record["kind"] == "traffic"]
        counted.append(dict(traffic[-1]))
        # A report has the counters of the moment before it is put itself.
        reports.append(len(traffic) - 1)
        counted[-1]["puts"] -= reports[-1]
        counted[-1]["bytes_up"] -= reports[-1] * HEADER_BYTES
    return counted, reports


@pytest.mark.parametrize(
    ("settings", "configured"),
    [
        ({"workers": 2, "collective": "scatter-reduce"}, {}),
        ({"workers": 3, "collective": "overlapped", "latency_ms": 2.0}, {}),
        ({"workers": 2, "collective": "all-reduce", "compress": "int8"}, {}),
        ({"workers": 2, "collective": "all-reduce", "compress": "topk:0.05"}, {}),
        ({"workers": 2, "sync": "local-sgd", "k": 4, "collective": "scatter-reduce"}, {}),
        (
            {
                "workers": 2,
                "sync": "local-sgd",
                "k": 4,
                "outer": "nesterov",
                "compress": "int8",
                "collective": "scatter-reduce",
            },
            {},
        ),
        (
            {
                "workers": 2,
                "sync": "local-sgd",
                "k": 4,
                "outer": "nesterov",
                "fragments": 2,
                "overlap": 2,
                "compress": "int8",
                "collective": "scatter-reduce",
            },
            {"streaming": Streaming(fragments=2, overlap=2)},
        ),
        (
            {"cut": (1, 3), "replicas": 1, "micro_batches": 4, "collective": "scatter-reduce"},
            {"workers": 3, "clips": True},
        ),
        (
            {"cut": (3,), "replicas": 2, "micro_batches": 2, "collective": "scatter-reduce"},
            {"workers": 4, "clips": True},
        ),
    ],
    ids=[
        "bsp",
        "link",
        "int8",
        "topk",
        "local SGD",
        "outer",
        "streamed",
        "stages",
        "stages in replicas",
    ],
)
@pytest.mark.long
def test_a_run_moves_what_was_predicted(
    settings: dict[str, Any],
    configured: dict[str, Any],
    tmp_path: Path,
    data: Path,
) -> None:
    job = small.job(data, optimizer=small.sgd, metrics={})  # gathering for them is not predicted
    run = dayfly.train(
        job,
        epochs=EPOCHS,
        run_dir=tmp_path / "run",
        **{**small.SETTINGS, "log_budget_mib": 64, **settings},
    )
    names = set(Configuration.__dataclass_fields__)
    asked = {name: value for name, value in settings.items() if name in names}
    configuration = Configuration(
        **{"batch_size": small.BATCH, "epochs": EPOCHS, **asked, **configured}
    )
    known = small_profile(limited="latency_ms" in settings)
    if configuration.sync == "local-sgd":
        known = profile(LAYERS, *known.sizes, **own(known, state_per_trained_byte=0.0))
    found = predict(known, configuration, AWS)
    counted, reports = messages(run, configuration.workers)

    def total(what: str) -> int:
        return sum(one[what] for one in counted)

    assert (total("puts"), total("gets")) == (found.run_volume.puts, found.run_volume.gets)
    said = total("bytes_up") - found.run_volume.bytes_up
    less = found.run_volume.bytes_down - total("bytes_down")
    if settings.get("compress") == "topk:0.05":  # an upper bound, near what it is
        assert 0 <= less <= 0.3 * found.run_volume.bytes_down
        said += less
    else:
        assert less == 0
    assert 0 <= said <= sum(reports) * MOST_OF_A_REPORT


def own(known: Profile, **changes: Any) -> dict[str, Any]:
    """What `small_profile` says that others do not."""
    return {"samples": known.samples, "validation_samples": known.validation_samples, **changes}


def test_the_layers_are_those_of_the_model() -> None:
    """So that what is written down here is what is run."""
    model = small.model()
    for layer, module in zip(LAYERS, model.children(), strict=True):
        assert layer.tensors == tuple(p.numel() for p in module.parameters())
        assert layer.moving in (sum(b.numel() for b in module.buffers()), None)
