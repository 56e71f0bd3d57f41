"""Streams of Hugging Face: counted, read by shard, each sample once, over deaths and a resume."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from functools import partial
from itertools import chain
from multiprocessing import Value
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dayfly
from dayfly.errors import RequestError, RunFailed
from dayfly.runs.evaluating.given import given
from dayfly.training.order import Epochs
from dayfly.training.slices import Slices
from dayfly.training.sources import StreamSource
from dayfly.training.stream_counts import identity
from dayfly.training.streams import MeasuredStream, measured
from tests.runs import small

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "counts"))


#: Samples of each file, which is a shard.
SIZES, SAMPLES = (10, 7, 12, 9), 38


def files(root: Path) -> list[str]:
    """Writes the shards; sample n has x [n, 1] and y n % 3."""
    pa, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    first, made = 0, []
    for number, size in enumerate(SIZES):
        rows = range(first, first + size)
        table = pa.table({"x": [[n / 1.0, 1.0] for n in rows], "y": [n % 3 for n in rows]})
        made.append(str(root / f"{number}.parquet"))
        parquet.write_table(table, made[-1], row_group_size=4)
        first += size
    return made


def stream(paths: list[str], root: Path) -> Any:
    loaded = pytest.importorskip("datasets").load_dataset(
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


def test_what_was_counted_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    paths, said, made = files(tmp_path), list[str](), list[int]()

    def data() -> Any:
        made.append(1)
        return shuffled(stream(paths, tmp_path)), stream(paths[:1], tmp_path)

    first = measured(job(data), said.append)
    assert (len(said), len(made)) == (2, 2), "once to count, once to compare"
    again = measured(job(data), said.append)
    assert (len(said), len(made)) == (2, 3)
    assert again.job.data.lengths == first.job.data.lengths  # type: ignore[union-attr]
    assert again.made is not None
    assert [len(one) for one in again.made] == [SAMPLES, SIZES[0]]
    os.utime(paths[2])
    measured(job(data), said.append)
    assert len(said) == 3, "the training stream alone has that file"
    (tmp_path / "counts/dayfly/streams").rename(tmp_path / "away")
    (tmp_path / "counts/dayfly/streams").write_text("no directory")
    measured(job(data), said.append)
    assert "cannot be kept" in said[-1]


def test_a_stream_that_names_a_directory_is_of_its_files(tmp_path: Path) -> None:
    long, there = "of no file " * 40, tmp_path / "shards"
    there.mkdir()
    files(there)
    first = identity((str(there), long))
    assert first == identity((str(there), long)) is not None
    (there / "4.parquet").write_bytes(b"new")
    assert identity((str(there), long)) not in (first, None)
    assert identity((str(there), Value("i"))) is None, "what cannot be pickled has none"


def test_a_stream_that_has_more_than_was_counted_fails(tmp_path: Path) -> None:
    paths = files(tmp_path)
    counted = MeasuredStream(stream(paths, tmp_path), (10, 7, 11, 9), counted=True)
    assert len(list(counted.shard(4, 1))) == 7
    with pytest.raises(RunFailed, match="has more than the 11 samples that were counted"):
        list(counted.shard(4, 2))
    assert len(list(MeasuredStream(stream(paths, tmp_path), (1,) * 4))) == SAMPLES


def test_an_evaluation_counts_what_it_reads(tmp_path: Path) -> None:
    paths, said = files(tmp_path), list[str]()
    trained = job(lambda: (stream(paths, tmp_path), stream(paths[1:], tmp_path)))
    found = given(None, trained, labels_needed=True, paired=False, note=said.append)
    assert found.samples == SAMPLES - SIZES[0]
    assert said == [
        "the validation stream says no length: its 3 shards are read once to count samples"
    ]
    paired = given(None, trained, labels_needed=False, paired=True, note=said.append)
    assert (paired.samples, len(said)) == (found.samples, 1)
    sample, nothing = paired.tried[0]
    assert (sorted(sample), nothing) == (["x", "y"], 0)


# Each of eight functions imports `datasets`, in 1 s of CPU. What a worker that starts again reads
# is in tests/training/test_streams.py, and what it reads of these streams above.
@pytest.mark.slow
def test_a_run_with_deaths_that_goes_on(tmp_path: Path) -> None:
    paths = files(tmp_path)

    def data() -> Any:
        return shuffled(stream(paths, tmp_path)), stream(paths[:1], tmp_path)

    small.check_deaths_and_more_epochs(partial(job, data), tmp_path, 6)


def test_streams_of_datasets_in_memory(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
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
    # The first samples of all are alike, those of the second shard are not.
    drawn = iter(range(99))

    def new() -> Any:
        some = [{"x": [0.0] * 11 + [float(next(drawn))] * 11, "y": [0] * 22} for _ in range(2)]
        return [datasets.Dataset.from_dict(one).to_iterable_dataset(num_shards=2) for one in some]

    with pytest.raises(RequestError, match="other samples when it is made again"):
        measured(job(new))
    with pytest.raises(RequestError, match="the job's validation Dataset is empty"):
        measured(job(lambda: (rows, data()[0].filter(lambda sample: sample["x"] < 0))))
