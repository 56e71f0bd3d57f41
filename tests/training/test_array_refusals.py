"""Arrays that cannot be trained on are refused, by name; nothing is unpickled."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dayfly.data.npy_arrays import load_arrays
from dayfly.errors import RequestError
from dayfly.training import state
from dayfly.training.arrays import check_arrays, store_arrays
from tests.training.stores import new_store

X, Y = np.ones((4, 2)), np.ones(4)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"y_train": Y}, "here has no x_train: it needs x_train and y_train"),
        ({"x_train": X}, "here has no y_train: it needs x_train and y_train"),
        (
            {"x_train": X, "y_train": Y, "x_val": X},
            "here has one of x_val and y_val: give both or neither",
        ),
        (
            {"x_train": np.ones(()), "y_train": Y},
            "x_train of here is empty: it needs a row a sample",
        ),
        (
            {"x_train": X, "y_train": Y, "x_val": X[:0], "y_val": Y[:0]},
            "x_val of here is empty: it needs a row a sample",
        ),
        (
            {"x_train": X.astype(str), "y_train": Y},
            "x_train of here has elements of type <U32: save it as numbers that torch knows, "
            "such as float32 or int64",
        ),
        (
            {"x_train": X, "y_train": Y.astype("datetime64[s]")},
            "y_train of here has elements of type datetime64[s]: save it as numbers that torch "
            "knows, such as float32 or int64",
        ),
        (
            {"x_train": X, "y_train": Y.astype("longdouble")},
            "y_train of here has elements of type float128: save it as numbers that torch knows, "
            "such as float32 or int64",
        ),
        ({"x_train": X, "y_train": Y[1:]}, "here: x_train has 4 rows, y_train has 3"),
        (
            {"x_train": X, "y_train": Y, "x_val": X, "y_val": Y[2:]},
            "here: x_val has 4 rows, y_val has 2",
        ),
        (
            {"x_train": X[:1], "y_train": Y[:1]},
            "here has one sample: nothing is left to validate on",
        ),
    ],
)
def test_refused(arrays: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_arrays(arrays, "here")
    assert str(refused.value).startswith(text)


def test_one_sample_will_do_with_validation_arrays() -> None:
    check_arrays({"x_train": X[:1], "y_train": Y[:1], "x_val": X, "y_val": Y}, "here")


class Trap:
    """Leaves a marker when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["directory", "npz", "raw", "npy as npz"])
def test_pickles_are_refused_without_running_them(form: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    trapped = np.array([Trap(marker), 2], dtype=object)
    path = tmp_path / "data"
    path.mkdir()
    match form:
        case "directory":
            np.save(path / "x_train.npy", trapped)
        case "npz":
            np.savez(path / "all.npz", x_train=trapped)
            path /= "all.npz"
        case "raw":
            (path / "x_train.npy").write_bytes(pickle.dumps(Trap(marker)))
        case "npy as npz":
            path /= "all.npz"
            path.write_bytes(pickle.dumps(Trap(marker)))
    with pytest.raises(RequestError, match=r"^data '.*' cannot be read as arrays: "):
        load_arrays(path)
    assert not marker.exists()


def test_what_is_not_there_or_no_arrays_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=r'is not there .looked in .*: give "digits", a directory of'
    ):
        load_arrays(tmp_path / "nothing")
    (tmp_path / "text.npz").write_text("x,y\n1,2\n")
    with pytest.raises(RequestError, match="cannot be read as arrays"):
        load_arrays(tmp_path / "text.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(RequestError, match="cannot be read as arrays"):
        load_arrays(tmp_path / "broken.npz")
    np.save(tmp_path / "alone.npy", np.ones(3))
    with pytest.raises(RequestError, match="is one array: give the directory"):
        load_arrays(tmp_path / "alone.npy")
    assert load_arrays(tmp_path) == {}


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x_train=np.random.rand(500), y_train=np.ones(500))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[500:900] = bytes(400)
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(RequestError, match="cannot be read as arrays"):
        load_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, complex(0, np.nan)])
@pytest.mark.parametrize("row", [0, 37, 99])
def test_numbers_that_are_none(bad: complex, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first bad row is named, of any array, chunk by chunk; with a note it is only told."""
    monkeypatch.setattr(state, "CHUNK_BYTES", 100)
    y = np.ones((100, 3), "complex64" if isinstance(bad, complex) else "float32")
    y[[row, 99], 1] = bad
    arrays = {"x_train": np.arange(100), "y_train": y}
    said: list[str] = []
    with new_store() as store:
        text = f"y_train of the job's data holds NaN or infinity in row {row}: clean it"
        with pytest.raises(RequestError, match=text):
            store_arrays(arrays, store, seed=0)
        assert [one.name for one in store.list()] == ["data/x_train.npy"]
        part, _ = store_arrays(arrays, store, seed=0, note=said.append)
        assert said == [f"y_train of the job's data holds NaN or infinity in row {row}"]
        np.testing.assert_array_equal(np.load(store.path(part.y.object)), y)
