"""Folders of images: a folder a class, root/cat/1.png; maybe below train/ and val/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from dayfly.data.base import DataSource, Samples
from dayfly.data.encoded import CHANNELS, Blobs, Encoded, Form, pillow
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

#: Endings of files of images.
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_VALIDATION = ("val", "validation", "valid", "test")
#: Bytes from the end in which a whole JPEG has its end mark.
_TAIL = 4096


@suggests
@dataclass(frozen=True, kw_only=True)
class ImageFolder(DataSource):
    """Images in a folder a class; workers decode them. Classes count in alphabetical order.

    A transform gets an image of PIL. Without one, x is (C, H, W) float32 of 0 to 1.

    Args:
        size: height and width that images are scaled to; default: as they are, which has to be
            one size for all unless a transform makes it so.
        mode: RGB, L (grey) or RGBA.
    """

    name: ClassVar[str] = "images"
    form: ClassVar[str] = "a folder of images a class"

    size: tuple[int, int] | None = None
    mode: str = "RGB"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_dir():
            return False
        below = path / "train" if (path / "train").is_dir() else path
        folders = _folders(below)
        return bool(folders) and any(
            file.suffix.lower() in SUFFIXES for file in folders[0].iterdir()
        )

    def read(self) -> Samples:
        image_form(self.size, self.mode, ())
        root = self.expanded_path
        if not root.is_dir():
            raise RequestError(f"data {str(root)!r} is no directory: give one of folders")
        parts = {"train": root}
        if (root / "train").is_dir():
            parts = {"train": root / "train"}
            found = [root / name for name in _VALIDATION if (root / name).is_dir()]
            parts |= {"val": found[0]} if found else {}
        classes = [folder.name for folder in _folders(parts["train"])]
        if len(classes) < 2:
            raise RequestError(
                f"{parts['train']} has {len(classes)} folders of images: it needs a folder a class"
            )
        files = {part: _files(folder, classes) for part, folder in parts.items()}
        sizes = {part: [_checked(path) for path, _ in some] for part, some in files.items()}
        every = {size[1:] for some in sizes.values() for size in some}
        form = image_form(self.size, self.mode, every)
        arrays: dict[str, Encoded | np.ndarray] = {}
        for part, some in files.items():
            paths = [path for path, _ in some]
            lengths = np.array([size[0] for size in sizes[part]], np.int64)
            arrays[f"x_{part}"] = Encoded(Blobs(lengths, _reading(paths)), form)
            arrays[f"y_{part}"] = np.array([number for _, number in some], np.int64)
        return Samples(arrays, classes)


def _reading(paths: Sequence[Path]) -> Callable[[int], bytes]:
    return lambda number: paths[number].read_bytes()


def _folders(root: Path) -> list[Path]:
    return sorted(one for one in root.iterdir() if one.is_dir() and not one.name.startswith("."))


def _files(root: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Images below a root, in alphabetical order, each with the number of its class."""
    found = []
    for folder in _folders(root):
        if folder.name not in classes:
            raise RequestError(f"{folder}: this class is not among those of training: move it away")
        for path in sorted(folder.rglob("*")):
            if path.name.startswith(".") or path.is_dir():
                continue
            if path.suffix.lower() not in SUFFIXES:
                raise RequestError(
                    f"{path} is no image by its name ({', '.join(SUFFIXES)}): move it away"
                )
            found.append((path, classes.index(folder.name)))
    counts = Counter(number for _, number in found)
    if not found or (len(counts) < len(classes) and root.name == "train"):
        raise RequestError(f"{root}: a folder has no images: put some there, or remove it")
    return found


def _checked(path: Path) -> tuple[int, int, int]:
    with path.open("rb") as file:
        return checked(str(path), file)


def checked(name: str, file: BinaryIO) -> tuple[int, int, int]:
    """Returns the bytes, height and width of an image.

    Args:
        name: of the image, in errors.
        file: opened for reading.

    Raises:
        RequestError: the image is damaged.
    """
    pil = pillow()
    try:
        image = pil.open(file)
        width, height = image.size
        kind = image.format
        image.verify()  # checksums of PNG
        nbytes = file.seek(0, 2)
        file.seek(max(0, nbytes - _TAIL))
        if kind == "JPEG" and b"\xff\xd9" not in file.read():
            raise OSError("it ends early")
    except Exception as error:  # of any of PIL's plug-ins
        raise RequestError(
            f"{name} cannot be read as an image: {in_short(error)}: put a whole one there, or "
            "remove it"
        ) from error
    return nbytes, height, width


def image_form(size: tuple[int, int] | None, mode: str, sizes: Collection[tuple[int, int]]) -> Form:
    """The form of images of these heights and widths. Raises RequestError for wrong options.

    Args:
        size: to which they are scaled; None: they stay.
    """
    if mode not in CHANNELS:
        raise RequestError(f"mode={mode!r}: give one of {', '.join(CHANNELS)}")
    pair = isinstance(size, tuple | list) and len(size) == 2
    if size is not None and not (pair and all(isinstance(n, int) and n > 0 for n in size)):
        raise RequestError(f"size={size!r}: give height and width, such as (64, 64)")
    if size is not None:
        return Form("image", (CHANNELS[mode], *size), mode, resized=True)
    return Form("image", (CHANNELS[mode], *next(iter(sizes))) if len(sizes) == 1 else (), mode)
