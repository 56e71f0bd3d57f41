"""Samples that a worker decodes: their bytes as they are stored, and the form they are in.

form    stored                            a sample, as a transform or the model gets it
plain   rows of numbers                   the row
unit    rows of bytes                     float32, each byte / 255
image   a file of an image, any length    an image of PIL for a transform; (C, H, W) of 0..1
sparse  pairs (int32 index, float32)      a dense row, float32
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dayfly.errors import RequestError, in_short

if TYPE_CHECKING:
    pass

#: One stored number of a sparse row.
PAIR = np.dtype([("index", "<i4"), ("value", "<f4")])
#: Modes of PIL's images that a tensor can hold, and their channels.
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}


@dataclass(frozen=True, slots=True)
class Form:
    """How a stored sample is decoded.

    Args:
        kind: see the table above.
        shape: of a decoded sample; empty: each image has its own.
        mode: of images: L, RGB or RGBA.
        resized: whether images are made to fit the shape.
    """

    kind: Literal["plain", "unit", "image", "sparse"] = "plain"
    shape: tuple[int, ...] = ()
    mode: str = ""
    resized: bool = False

    @property
    def decoded_bytes(self) -> int:
        """Of a decoded sample; 0: not known."""
        return 4 * int(np.prod(self.shape, dtype=np.int64)) if self.shape else 0

    def decode(self, stored: Any) -> Any:
        """A sample as a transform gets it, of what is stored: its row, or its bytes."""
        import torch

        if self.kind == "image":
            return self._image(stored)
        if self.kind == "sparse":
            pairs = np.frombuffer(stored, PAIR)
            row = np.zeros(self.shape, np.float32)
            row[pairs["index"]] = pairs["value"]
            return torch.from_numpy(row)
        rows = stored if isinstance(stored, torch.Tensor) else torch.from_numpy(np.array(stored))
        return rows.float() / 255 if self.kind == "unit" else rows

    def finish(self, sample: Any) -> Any:
        """What the model gets, of a sample, or of what a transform made of it."""
        if not hasattr(sample, "getbands"):
            return sample
        import torch

        pixels = np.array(sample, dtype=np.uint8).reshape(sample.height, sample.width, -1)
        return torch.from_numpy(pixels.transpose(2, 0, 1)).float() / 255

    def _image(self, stored: Any) -> Any:
        pil = pillow()
        try:
            with pil.open(io.BytesIO(stored)) as opened:
                image = opened.convert(self.mode)
        except Exception as error:  # of any of PIL's plug-ins
            raise RequestError(
                f"an image of the data cannot be decoded: {in_short(error)}: find it with "
                "PIL.Image.open(path).load() and put a whole one there"
            ) from error
        if self.resized:
            height, width = self.shape[1:]
            image = image.resize((width, height), pil.Resampling.BILINEAR)
        return image


@dataclass(frozen=True, slots=True)
class Blobs:
    """Samples of unequal length.

    Args:
        lengths: (N,), bytes of each.
        read: returns the bytes of a sample, by its number.
    """

    lengths: NDArray[np.int64]
    read: Callable[[int], bytes]

    def __len__(self) -> int:
        return len(self.lengths)

    def pieces(self) -> Iterator[bytes]:
        """The samples in their order. Raises RequestError if one changed since it was measured."""
        for number, length in enumerate(self.lengths.tolist()):
            found = self.read(number)
            if len(found) != length:
                raise RequestError(
                    f"sample {number} of the data changed while it was read: let the files rest, "
                    "and start again"
                )
            yield found


@dataclass(frozen=True, slots=True)
class Encoded:
    """An array of samples that workers decode: what is stored, and its form."""

    stored: NDArray[Any] | Blobs
    form: Form

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def nbytes(self) -> int:
        """Of all samples, decoded if their size is known."""
        if self.form.decoded_bytes:
            return len(self) * self.form.decoded_bytes
        stored = self.stored
        return int(stored.lengths.sum()) if isinstance(stored, Blobs) else stored.nbytes

    def sample(self, number: int) -> Any:
        """One sample, as a transform gets it."""
        stored = self.stored
        one = stored.read(number) if isinstance(stored, Blobs) else stored[number]
        return self.form.decode(one)


def pillow() -> Any:
    """Returns PIL's module of images. Raises RequestError if it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise RequestError(
            "images are decoded by Pillow, which is not installed: pip install 'dayfly[images]'"
        ) from None
    return Image
