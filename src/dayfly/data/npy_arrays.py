"""Arrays of numpy in files, and the set of digits that scikit-learn brings."""

from __future__ import annotations

import importlib.util
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dayfly.data.base import DataSource, Samples
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

_NAMES = ("x_train", "y_train", "x_val", "y_val")


@suggests
@dataclass(frozen=True, kw_only=True)
class ArrayFiles(DataSource):
    """`x_train, y_train` and, maybe, `x_val, y_val`: `.npy` files of a directory, or one `.npz`."""

    name: ClassVar[str] = "arrays"
    form: ClassVar[str] = "arrays of numpy"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if path.is_dir():
            return any((path / f"{name}.npy").exists() for name in _NAMES)
        return path.suffix.lower() in (".npz", ".npy")

    def read(self) -> Samples:
        return Samples(load_arrays(self.expanded_path))


def load_array(path: Path) -> NDArray[Any]:
    """Returns the array of a `.npy` file, mapped into memory. Raises RequestError."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"data {str(path)!r} cannot be read: {in_short(error)}") from error
    if not isinstance(array, np.ndarray):
        raise RequestError(f"data {str(path)!r} is no array: save it by numpy.save")
    return array


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a directory of `.npy` files or of one `.npz`. Raises RequestError."""
    try:
        if path.is_dir():
            files = {name: path / f"{name}.npy" for name in _NAMES}
            return {
                name: np.load(file, mmap_mode="r", allow_pickle=False)
                for name, file in files.items()
                if file.exists()
            }
        archive = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise RequestError(
                f"data {str(path)!r} is one array: give the directory of x_train.npy and "
                "y_train.npy, or one .npz"
            )
        with archive:
            return {name: archive[name] for name in _NAMES if name in archive}
    except FileNotFoundError:
        raise RequestError(
            f"data {str(path)!r} is not there (looked in {Path.cwd()}): "
            'give "digits", a directory of x_train.npy and y_train.npy, or one .npz'
        ) from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RequestError(
            f"data {str(path)!r} cannot be read as arrays: {in_short(error)}: save them with "
            "numpy.save in a directory, or numpy.savez"
        ) from error


#: The file in scikit-learn's package.
_DIGITS = ("datasets", "data", "digits.csv.gz")


def digits() -> dict[str, NDArray[Any]]:
    """Returns scikit-learn's handwritten digits: x (1797, 1, 8, 8) float32, 0..1, y (1797,) int64.

    The file is read where scikit-learn has it: importing the package takes more than a second.

    Raises:
        RequestError: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    files = [path for one in folders if (path := Path(one, *_DIGITS)).is_file()]
    if not files:
        raise RequestError(
            'data="digits" comes with scikit-learn, which is not installed: '
            "pip install 'dayfly[digits]'"
        )
    rows = np.loadtxt(files[0], delimiter=",", dtype=np.float32)  # (1797, 64 pixels and the digit)
    images = rows[:, :-1].reshape(-1, 1, 8, 8) / np.float32(16)
    return {"x_train": images, "y_train": rows[:, -1].astype(np.int64)}


#: Built-in data by name.
BUILTIN = {"digits": digits}
