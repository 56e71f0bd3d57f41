"""WebDataset: shards that are tar files, in which neighbours of one name are a sample.

train-000.tar   0001.jpg 0001.cls 0002.jpg 0002.cls ...
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dayfly.data.base import Array, DataSource, Samples
from dayfly.data.encoded import Blobs, Encoded
from dayfly.data.image_folder import SUFFIXES, checked, image_form
from dayfly.data.spool import Spool
from dayfly.errors import RequestError, in_short
from dayfly.misspelt import suggests

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_IMAGES = tuple(suffix.removeprefix(".") for suffix in SUFFIXES)


@suggests
@dataclass(frozen=True, kw_only=True)
class TarShards(DataSource):
    """Shards of a directory, or of a pattern: `train-*.tar`, `train-{000..009}.tar`.

    Shards are read in the order of their names, and their samples placed in the store one after
    another, so that workers read any of them. x is what ends with `x`: images, which workers
    decode, or `.npy`; y is the whole number in `.cls`.

    Args:
        x: ending of x; default: that of an image, or npy, of the first sample.
        y: ending of y.
        size: height and width that images are scaled to; default: as they are.
        mode: of images: RGB, L (grey) or RGBA.
        validation: shards to validate on; default: a tenth is split off by the seed.
    """

    name: ClassVar[str] = "webdataset"
    form: ClassVar[str] = "WebDataset's shards"

    x: str | None = None
    y: str = "cls"
    size: tuple[int, int] | None = None
    mode: str = "RGB"
    validation: str | PathLike[str] | None = None

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.suffix == ".tar" if path.is_file() else any(path.glob("*.tar"))

    def read(self) -> Samples:
        image_form(self.size, self.mode, ())
        places = {"train": self.expanded_path}
        if self.validation is not None:
            places["val"] = Path(fspath(self.validation)).expanduser()
        read = {part: _Part.of(_shards(place), self.x, self.y) for part, place in places.items()}
        arrays: dict[str, Array] = {}
        every = {size for part in read.values() for size in part.sizes}
        for name, part in read.items():
            form = image_form(self.size, self.mode, every)
            blobs = part.x if isinstance(part.x, Blobs) else None
            arrays[f"x_{name}"] = Encoded(blobs, form) if blobs is not None else cast(Any, part.x)
            arrays[f"y_{name}"] = part.y
        return Samples(arrays)

    def paths(self) -> Sequence[Path]:
        return [shard for place in super().paths() for shard in _shards(place)]


def _shards(place: Path) -> list[Path]:
    if place.is_dir():
        found = sorted(place.glob("*.tar"))
    else:
        text = str(place)
        span = _RANGE.search(text)
        if span is not None:
            first, last = span.groups()
            numbers = [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)]
            found = [Path(text[: span.start()] + n + text[span.end() :]) for n in numbers]
        elif "*" in place.name:
            found = sorted(place.parent.glob(place.name))
        else:
            found = [place]
    for path in found:
        if not path.is_file():
            raise RequestError(f"shard {str(path)!r} is not there: put it there, or name others")
    if not found:
        raise RequestError(f"{str(place)!r} has no shards: name a directory of .tar files")
    return found


@dataclass(frozen=True)
class _Part:
    """The samples of some shards. sizes: heights and widths of images."""

    x: Blobs | NDArray[Any]
    y: NDArray[np.int64]
    sizes: set[tuple[int, int]]

    @classmethod
    def of(cls, shards: Sequence[Path], x: str | None, y: str) -> _Part:
        places, labels, sizes = Spool(np.int64, (3,)), Spool(np.int64), set[tuple[int, int]]()
        rows: Spool | None = None
        for number, shard in enumerate(shards):
            for key, members, archive in _samples(shard):
                x = x or next((end for end in (*_IMAGES, "npy") if end in members), None)
                if x is None or x not in members or y not in members:
                    has = ", ".join(f".{end}" for end in members)
                    raise RequestError(
                        f"{shard}, sample {key}: it has {has}, and needs .{x or 'jpg'} and .{y}: "
                        "name others by x= and y="
                    )
                labels.add(np.array([_label(shard, f"{key}.{y}", archive, members[y])]))
                name, member = f"{shard}, {key}.{x}", members[x]
                file = cast(BinaryIO, archive.extractfile(member))
                if x == "npy":
                    row = _array(name, file)
                    rows = rows or Spool(row.dtype, row.shape)
                    if (row.dtype, row.shape) != rows.row:
                        raise RequestError(
                            f"{name} is {list(row.shape)} {row.dtype}, unlike those before: pad "
                            "all to one shape"
                        )
                    rows.add(row[None])
                else:
                    sizes.add(checked(name, file)[1:])
                    places.add(np.array([[number, member.offset_data, member.size]]))
        if not labels.rows:
            raise RequestError(f"{shards[0]} has no samples: put files such as 0001.jpg there")
        if rows is not None:
            return cls(rows.array(), labels.array(), sizes)
        found = places.array()
        return cls(Blobs(found[:, 2], _reading(shards, found)), labels.array(), sizes)


def _reading(shards: Sequence[Path], places: NDArray[np.int64]) -> Callable[[int], bytes]:
    def read(sample: int) -> bytes:
        number, offset, size = places[sample].tolist()
        with shards[number].open("rb") as file:
            file.seek(offset)
            return bytes(file.read(size))

    return read


def _samples(shard: Path) -> Iterator[tuple[str, dict[str, tarfile.TarInfo], tarfile.TarFile]]:
    """Name and members, by their endings, of each sample; members that are neighbours."""
    try:
        with tarfile.open(shard, "r:") as archive:
            key, members = "", dict[str, tarfile.TarInfo]()
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # which would all be kept
                folder, _, name = member.name.rpartition("/")
                if not member.isfile() or name.startswith("."):
                    continue
                stem, _, end = name.partition(".")
                own = f"{folder}/{stem}" if folder else stem
                if own != key and members:
                    yield key, members, archive
                    members = {}
                key = own
                members[end.lower()] = member
            if members:
                yield key, members, archive
    except (tarfile.TarError, OSError) as error:
        raise RequestError(
            f"{shard} cannot be read as a tar: {in_short(error)}: put a whole one there, "
            "uncompressed"
        ) from error


def _label(shard: Path, name: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    text = cast(BinaryIO, archive.extractfile(member)).read(100)
    try:
        return int(text)
    except ValueError:
        raise RequestError(
            f"{shard}, {name} holds {text[:20]!r}, which is no whole number: write class numbers"
        ) from None


def _array(name: str, file: BinaryIO) -> NDArray[Any]:
    try:
        return np.asarray(np.load(io.BytesIO(file.read()), allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise RequestError(f"{name} cannot be read as an array: {in_short(error)}") from error
