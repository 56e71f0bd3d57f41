"""Samples as they are read, placed in a store and decoded by workers: the same, and few bytes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dayfly.data
from dayfly.data.encoded import Blobs, Encoded, Form
from dayfly.dataclass_json import dump, read
from dayfly.errors import RequestError
from dayfly.training.arrays import AMPLIFICATION, ArraySplit, coalesced, store_arrays
from dayfly.training.order import Epochs
from dayfly.training.sources import ArraySource
from dayfly.wire.stores.files import FileStore
from tests.training.stores import new_store


class CountingStore(FileStore):
    """Counts the bytes that are read from it."""

    taken = 0

    def read_into(self, name: str, ranges: Any) -> None:
        self.taken += sum(memory.nbytes for _, memory in ranges)
        super().read_into(name, ranges)


def folder(root: Path, sizes: Any = None, classes: int = 3, each: int = 10) -> Path:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for number in range(classes):
        (root / f"c{number}").mkdir(parents=True)
        for one in range(each):
            height, width = (8, 6) if sizes is None else sizes(one)
            pixels = rng.integers(0, 255, (height, width, 3), np.uint8)
            image.fromarray(pixels).save(root / f"c{number}" / f"{one:02}.png")
    return root


def pixels(path: Path) -> torch.Tensor:
    image = pytest.importorskip("PIL.Image")
    return torch.from_numpy(np.array(image.open(path))).permute(2, 0, 1).float() / 255


def test_images_are_decoded_by_workers(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    samples = dayfly.data.images(root).read()
    assert list(samples.classes) == ["c0", "c1", "c2"]
    files = sorted(root.rglob("*.png"))
    with new_store() as store:
        split, validation = store_arrays(samples.arrays, store, seed=0)
        assert read(ArraySplit, dump(split), "p") == split
        assert (split.samples, validation.samples) == (27, 3)
        source = ArraySource(store, split, None, seed=0)
        indices = np.array([20, 3, 3, 0])
        x, y = source.batch(source.fetch(indices), indices, range(4), 0)
        for sample, label, row in zip(x, y, split.rows_of(indices), strict=True):
            assert torch.equal(sample, pixels(files[row]))
            assert files[row].parent.name == f"c{int(label)}"


def test_a_transform_gets_the_image(tmp_path: Path) -> None:
    samples = dayfly.data.images(folder(tmp_path / "photos"), mode="L", size=(4, 5)).read()
    seen = []

    def turned(image: Any) -> Any:
        seen.append((image.size, image.mode))
        return image.rotate(180)

    with new_store() as store:
        split, _ = store_arrays(samples.arrays, store, seed=0)
        source = ArraySource(store, split, turned, seed=0)
        plain = ArraySource(store, split, None, seed=0)
        indices = np.arange(3)
        x, _ = source.batch(source.fetch(indices), indices, range(3), 0)
        straight, _ = plain.batch(plain.fetch(indices), indices, range(3), 0)
    assert seen == [((5, 4), "L")] * 3
    assert torch.equal(x, straight.flip((2, 3)))


def test_folders_of_training_and_validation(tmp_path: Path) -> None:
    folder(tmp_path / "train")
    folder(tmp_path / "val", each=2)
    arrays = dayfly.data.images(tmp_path).read().arrays
    assert (len(arrays["x_train"]), arrays["y_val"].tolist()) == (30, [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("c1/03.png", None, r"c1/03\.png cannot be read as an image: .*: put a whole one there"),
        ("c1/notes.txt", b"x", r"c1/notes\.txt is no image by its name"),
        ("c3/notes.png", b"x", r"c3/notes\.png cannot be read as an image"),
    ],
)
def test_bad_images_are_refused(file: str, content: Any, said: str, tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    path = root / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(path.read_bytes()[:60] if content is None else content)
    with pytest.raises(RequestError, match=said):
        dayfly.data.images(root).read()


def test_an_image_that_ends_early_is_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in "ab":
        (tmp_path / name).mkdir()
        image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / name / "1.jpg")
    whole = (tmp_path / "b" / "1.jpg").read_bytes()
    (tmp_path / "b" / "1.jpg").write_bytes(whole[:-10])
    with pytest.raises(RequestError, match=r"b/1\.jpg cannot be read as an image: .* ends early"):
        dayfly.data.images(tmp_path).read()


spans = st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=60)


@given(spans)
def test_coalesced_spans_cover_the_samples_and_read_at_most_twice(some: Any) -> None:
    ends = np.cumsum([length for length, _ in some])
    every = [range(end - length, end) for end, (length, _) in zip(ends, some, strict=True)]
    wanted = [span for span, (_, chosen) in zip(every, some, strict=True) if chosen]
    found = coalesced(np.array([(one.start, one.stop) for one in wanted]).reshape(-1, 2))
    needed = sum(map(len, wanted))
    assert {byte for one in wanted for byte in one} <= {byte for one in found for byte in one}
    assert sum(map(len, found)) <= AMPLIFICATION * needed
    assert all(a.stop < b.start for a, b in itertools.pairwise(found)), "each a request, in order"


@pytest.mark.parametrize("workers", [1, 4])
def test_an_epoch_reads_at_most_twice_the_bytes_that_it_needs(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted at the store, the spans included, of samples of 100 to 2000 bytes."""
    rng = np.random.default_rng(0)
    blobs = [rng.bytes(8 * int(n)) for n in rng.integers(12, 250, 400)]
    monkeypatch.setattr(Form, "decode", lambda form, stored: stored)
    encoded = Encoded(Blobs(np.array([len(b) for b in blobs]), blobs.__getitem__), Form("image"))
    store = CountingStore(tmp_path)
    more = {"x_val": np.ones(1), "y_val": np.zeros(1)}
    split, _ = store_arrays({"x_train": encoded, "y_train": np.arange(400), **more}, store, seed=0)
    epochs = Epochs(400, 32, seed=1)
    sources = [ArraySource(store, split, None, 0) for _ in range(workers)]
    store.taken = 0
    for step in range(epochs.steps):
        for rank, source in enumerate(sources):
            rows = epochs.indices(step, rank, workers)
            x, _ = source.fetch(rows)
            assert x == [blobs[row] for row in rows]
    needed = sum(map(len, blobs)) + 400 * (16 + 8)
    assert needed <= store.taken <= AMPLIFICATION * needed
    assert store.taken == sum(source.bytes_read for source in sources)
