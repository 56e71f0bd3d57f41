"""Datasets that come in several files: Hugging Face's from disk, and WebDataset's tar files."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dayfly.data
from dayfly.data import source_of
from dayfly.errors import RequestError
from dayfly.training.arrays import store_arrays
from dayfly.training.sources import ArraySource
from tests.training.stores import new_store


def saved(root: Path, columns: dict[str, Any], shards: int, names: list[str]) -> None:
    """A split as `save_to_disk` leaves it."""
    pa = pytest.importorskip("pyarrow")
    root.mkdir(parents=True)
    table, files = pa.table(columns), []
    for number in range(shards):
        files.append(f"data-{number:05}-of-{shards:05}.arrow")
        start, stop = (len(table) * n // shards for n in (number, number + 1))
        with pa.ipc.new_stream(str(root / files[-1]), table.schema) as stream:
            stream.write_table(table.slice(start, stop - start), max_chunksize=3)
    state = {"_data_files": [{"filename": name} for name in files], "_split": "train"}
    (root / "state.json").write_text(json.dumps(state))
    label = {"names": names, "_type": "ClassLabel"}
    features = {"a": {"dtype": "float32", "_type": "Value"}, "label": label}
    (root / "dataset_info.json").write_text(json.dumps({"features": features}))


COLUMNS = {"a": [n / 2 for n in range(10)], "label": [n % 2 for n in range(10)]}


def test_a_dataset_of_hugging_face(tmp_path: Path) -> None:
    saved(tmp_path / "d" / "train", COLUMNS, 3, ["neg", "pos"])
    few = {name: some[:2] for name, some in COLUMNS.items()}
    saved(tmp_path / "d" / "test", few, 1, ["neg", "pos"])
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    samples = source_of(tmp_path / "d").read()
    assert samples.arrays["x_train"].tolist() == [[n / 2] for n in range(10)]
    assert samples.arrays["y_train"].tolist() == COLUMNS["label"]
    assert samples.arrays["y_val"].tolist() == [0, 1]
    assert samples.classes == ["neg", "pos"]
    one = source_of(tmp_path / "d" / "train").read().arrays
    assert sorted(one) == ["x_train", "y_train"]


def test_bad_datasets_of_hugging_face(tmp_path: Path) -> None:
    bad = {**COLUMNS, "a": [None if n == 8 else 1.0 for n in range(10)]}
    saved(tmp_path / "d", bad, 2, ["neg", "pos"])
    with pytest.raises(RequestError, match="d, row 8: column 'a' has no value"):
        source_of(tmp_path / "d").read()
    file = tmp_path / "d" / "data-00001-of-00002.arrow"
    file.write_bytes(file.read_bytes()[:-150])
    with pytest.raises(RequestError, match="it cannot be read as streams of Arrow"):
        source_of(tmp_path / "d").read()
    (tmp_path / "d" / "state.json").write_text('{"_data_files": [{"filename": "../x.arrow"}]}')
    with pytest.raises(RequestError, match=r"its state\.json names no files of data"):
        source_of(tmp_path / "d").read()


@pytest.mark.slow  # the form of the files is that of the test above
def test_what_the_library_itself_saves(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"a": datasets.Value("float32"), "label": label})
    whole = datasets.Dataset.from_dict(COLUMNS, features=features)
    order = [3, 1, 4, 0, 5]
    whole.select(order).save_to_disk(tmp_path / "d", num_shards=2)
    samples = source_of(tmp_path / "d").read()
    assert samples.arrays["x_train"].tolist() == [[n / 2] for n in order]
    assert samples.classes == ["neg", "pos"]


def shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def png(value: int) -> bytes:
    image = pytest.importorskip("PIL.Image")
    into = io.BytesIO()
    image.fromarray(np.full((4, 5, 3), value, np.uint8)).save(into, "png")
    return into.getvalue()


def npy(array: np.ndarray) -> bytes:
    into = io.BytesIO()
    np.save(into, array)
    return into.getvalue()


def test_images_in_shards(tmp_path: Path) -> None:
    for number in range(3):
        members = {}
        for one in range(4):
            sample = number * 4 + one
            members |= {
                f"d/{sample:03}.png": png(sample),
                f"d/{sample:03}.cls": b"%d" % (sample % 3),
            }
            members |= {f"d/{sample:03}.json": b"{}"}
        shard(tmp_path / f"train-{number:03}.tar", members)
    samples = source_of(tmp_path).read()
    with new_store() as store:
        split, _ = store_arrays(samples.arrays, store, seed=0)
        source = ArraySource(store, split, None, seed=0)
        indices = np.arange(split.samples)
        x, y = source.batch(source.fetch(indices), indices, range(len(indices)), 0)
        rows = split.rows_of(indices)
    assert x is not None
    assert y is not None
    assert torch.equal((x * 255).round()[:, 0, 0, 0], torch.from_numpy(rows).float())
    assert y.tolist() == (rows % 3).tolist()
    some = dayfly.data.webdataset(tmp_path / "train-{001..002}.tar", validation=tmp_path).read()
    assert [len(some.arrays[name]) for name in ("x_train", "x_val")] == [8, 12]


def test_arrays_in_shards(tmp_path: Path) -> None:
    rows = [np.arange(3.0) + n for n in range(3)]
    members = {f"{n}.{end}": one for n in range(3) for end, one in
               (("cls", b"1\n"), ("npy", npy(rows[n])))}  # fmt: skip
    path = shard(tmp_path / "s.tar", members)
    assert source_of(path).read().arrays["x_train"].tolist() == [one.tolist() for one in rows]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"1.cls": b"0"}, r"s\.tar, sample 1: it has \.cls, and needs \.jpg and \.cls"),
        ({"1.npy": npy(np.ones(2)), "1.cls": b"cat"}, r"s\.tar, 1\.cls holds b'cat', which is no"),
        ({"1.png": b"no", "1.cls": b"0"}, r"s\.tar, 1\.png cannot be read as an image"),
        ({"1.npy": b"no", "1.cls": b"0"}, r"s\.tar, 1\.npy cannot be read as an array"),
        (
            {"1.npy": npy(np.array([{}], dtype=object)), "1.cls": b"0"},
            r"1\.npy cannot be read as an array: ValueError: .*allow_pickle=False",
        ),
        (
            {"1.npy": npy(np.ones(2)), "1.cls": b"0", "2.npy": npy(np.ones(3)), "2.cls": b"0"},
            r"s\.tar, 2\.npy is \[3\] float64, unlike those before",
        ),
        ({}, "has no samples"),
    ],
)
def test_bad_shards(members: dict[str, bytes], said: str, tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", members)
    with pytest.raises(RequestError, match=said):
        source_of(path).read()


def test_a_shard_that_ends_early(tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", {"1.npy": npy(np.ones(9000)), "1.cls": b"0"})
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(RequestError, match=r"s\.tar"):
        source_of(path).read()
    with pytest.raises(RequestError, match=r"shard '.*t-2\.tar' is not there"):
        dayfly.data.webdataset(tmp_path / "t-{2..3}.tar").read()
