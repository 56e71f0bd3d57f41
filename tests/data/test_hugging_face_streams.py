"""Streams of Hugging Face: counted, read by shard, each sample once, over deaths and a resume."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dayfly
from dayfly.errors import RequestError
from dayfly.training.order import Epochs
from dayfly.training.slices import Slices
from dayfly.training.sources import StreamSource
from dayfly.training.streams import measured
from tests.runs import small

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.long

#: Samples of each file, which is a shard.
SIZES, SAMPLES = (10, 7, 12, 9), 38


def files(root: Path) -> list[str]:
    """Writes the shards; sample n has x [n, 1] and y n % 3."""
    first, made = 0, []
    for number, size in enumerate(SIZES):
        rows = range(first, first + size)
        table = pa.table({"x": [[n / 1.0, 1.0] for n in rows], "y": [n % 3 for n in rows]})
        made.append(str(root / f"{number}.parquet"))
        parquet.write_table(table, made[-1], row_group_size=4)
        first += size
    return made


def stream(paths: list[str], root: Path) -> Any:
    loaded = datasets.load_dataset(
        "parquet", data_files=paths, streaming=True, split="train", cache_dir=str(root / "cache")
    )
    return loaded.with_format("torch")


def shuffled(one: Any) -> Any:
    """From several shards at once, each end of an iterator would take 5 s."""
    return one.shuffle(seed=1, buffer_size=4, max_buffer_input_shards=1)


def classes(model: nn.Module, batch: Any) -> Any:
    outputs = model(batch["x"].float() / 40)
    return nn.functional.cross_entropy(outputs, batch["y"]), outputs


def job(data: Any, **more: Any) -> dayfly.Job:
    given: dict[str, Any] = {"data": data, "step": classes, "batch_size": 8, "epochs": 2}
    return dayfly.Job(model=lambda: nn.Linear(2, 3), optimizer=small.sgd, **given | more)


def test_shards_of_files_are_read_by_those_who_need_them(tmp_path: Path) -> None:
    paths, said, read = files(tmp_path), [], Counter[int]()

    def counted(sample: Any) -> Any:
        read[int(sample["x"][0])] += 1
        return sample

    def data() -> Any:
        whole = stream(paths, tmp_path)
        return shuffled(whole.map(counted)), stream(paths[:1], tmp_path)

    of = measured(job(data), said.append).job
    assert said == [
        "the training stream says no length: its 4 shards are read once to count samples",
        "the validation stream says no length: its 1 shard is read once to count samples",
    ]
    assert measured(of).job is of, "counted once"
    training, validation = of.data()  # type: ignore[operator]
    assert sorted(training.shard_lengths) == sorted(SIZES)
    assert len(validation) == SIZES[0]
    seen: dict[int, list[list[int]]] = {}
    for workers in (1, 2, 4):
        read.clear()
        seen[workers] = [[] for _ in range(10)]
        for rank in range(workers):
            source, epochs = StreamSource(of.data()[0], 7), Epochs(SAMPLES, 8, seed=1)  # type: ignore[operator]
            with closing(Slices(source, epochs, rank, workers, 1, end=10)) as slices:
                for step in range(10):
                    for piece in slices.pieces(step):
                        seen[workers][step] += piece.batch["x"][:, 0].int().tolist()
        for epoch in (seen[workers][:5], seen[workers][5:]):
            assert sorted(chain(*epoch)) == list(range(SAMPLES)), "each sample once"
        assert read.total() <= 2 * 2 * SAMPLES, "of two epochs"
    assert seen[1] == seen[2] == seen[4]
    assert seen[1][:5] != seen[1][5:], "shuffled anew in each epoch"


# Each of eight functions imports `datasets`, in 1 s of CPU. What a worker that starts again reads
# is in tests/training/test_streams.py, and what it reads of these streams above.
@pytest.mark.slow
def test_a_run_with_deaths_that_goes_on(tmp_path: Path) -> None:
    paths = files(tmp_path)

    def data() -> Any:
        return shuffled(stream(paths, tmp_path)), stream(paths[:1], tmp_path)

    small.check_deaths_and_more_epochs(partial(job, data), tmp_path, 6)


def test_streams_of_datasets_in_memory(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"x": torch.arange(22.0).tolist(), "y": [0] * 22})

    def data(shards: int = 4) -> Any:
        return rows.to_iterable_dataset(num_shards=shards), rows.with_format("torch")

    training, validation = measured(job(data)).job.data()  # type: ignore[operator]
    assert training.shard_lengths == (6, 6, 5, 5)
    assert len(validation) == 22
    assert len(measured(job(lambda: data(1))).job.data()[0]) == 22  # type: ignore[operator]
    missing = datasets.Dataset.from_dict({"x": [float("nan")] * 9, "y": [0] * 9})
    assert len(measured(job(lambda: (missing.to_iterable_dataset(), rows))).job.data()[0]) == 9  # type: ignore[operator]
    with pytest.raises(RequestError, match=r"other samples when it is made again.*shuffle\(\)"):
        measured(job(lambda: [one.shuffle(buffer_size=9) for one in (data()[0], data()[0])]))
    with pytest.raises(RequestError, match="the job's validation Dataset is empty"):
        measured(job(lambda: (rows, data()[0].filter(lambda sample: sample["x"] < 0))))
