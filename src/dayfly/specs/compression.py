"""What `--compress` takes, described without torch: what travels of a gradient, and its bytes.

Settings are checked, and memory and bytes are predicted, by a description; workers alone import
what carries it out (`training.compression`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dayfly.errors import RequestError
from dayfly.wire.codec import CHUNK, CODECS, sparse_bytes

#: Rank of PowerSGD unless another is given, as in `powersgd:8`.
USUAL_RANK = 4
#: Codec of each method whose messages have another form.
_CODECS = {
    **{name: name for name in ("bf16", "int8", "int4")},
    **dict.fromkeys(("topk", "significance"), "sparse"),
}
_KNOWN = (
    "give one of none, bf16, int8, int4, powersgd, topk:FRACTION, significance:V, or powersgd:R "
    "for another rank than 4"
)


@dataclass(frozen=True, slots=True)
class Compression:
    """A way to make gradients smaller.

    Args:
        rank: of PowerSGD's matrices.
        fraction: of each chunk's values that travels with topk, above 0 and at most 1.
        exact: whether these travel as they are, and not in 2 bits each.
        threshold: V of the significance filter, 0 or more.
    """

    method: Literal["none", "bf16", "int8", "int4", "powersgd", "topk", "significance"] = "none"
    rank: int = 0
    fraction: float = 0.0
    exact: bool = False
    threshold: float = 0.0

    @property
    def codec(self) -> str | None:
        """Name of the form that messages have; None: whoever adds them up need not know one."""
        return _CODECS.get(self.method)

    @property
    def feeds_back(self) -> bool:
        """Whether a worker keeps what was not sent, an element for each of the gradient's."""
        return self.method in ("int8", "int4", "topk", "significance")

    @property
    def known_bytes(self) -> bool:
        """Whether `travelling_bytes` knows the bytes before a run."""
        return self.method not in ("powersgd", "significance")

    def travelling_bytes(self, length: int, terms: int = 1) -> int:
        """Returns the payload of a message in the method's codec; of topk at most.

        Args:
            length: float32 elements, of a buffer of many.
            terms: contributions that were summed up; 1: it is a contribution.

        Raises:
            ValueError: nobody knows: it has no codec, or its bytes follow from the values.
        """
        if self.method == "topk":
            kept = min(CHUNK, terms * kept_of(CHUNK, self.fraction))
            # Each worker's 2 bits are 0 or one of 4 numbers; more terms than 8 could give any sum.
            alike = None if self.exact else (5 ** min(terms, 8) - 1) // 2
            return sparse_bytes(length, kept, alike)
        if self.codec is None or not self.known_bytes:
            raise ValueError(f"bytes of {self}")
        form = CODECS[self.codec]().form(length)
        assert form is not None, f"{self.codec} has a size"
        dtype, shape = form
        return dtype.itemsize * shape[0]


def kept_of(length: int, fraction: float) -> int:
    """Returns the values of a chunk of `length` that travel with topk: at least 1."""
    # Rounded first: a fraction such as 0.07 of 100 is 7, and not a little more.
    return max(1, math.ceil(round(fraction * length, 6)))


def compression(text: str) -> Compression:
    """From what `--compress` takes. Raises RequestError, in one sentence, for what is not known."""
    method, colon, given = text.partition(":")
    match method:
        case "topk":
            return _topk(text, given)
        case "significance":
            return _significance(text, given)
        case "powersgd" if not colon or (given.isdecimal() and int(given) >= 1):
            return Compression("powersgd", rank=int(given) if colon else USUAL_RANK)
        case "none" | "bf16" | "int8" | "int4" if not colon:
            return Compression(method)
    raise RequestError(f"--compress {text!r} is not known: {_KNOWN}")


def _topk(text: str, given: str) -> Compression:
    number, colon, values = given.partition(":")
    fraction = _number(number)
    if not 0 < fraction <= 1:
        raise RequestError(
            f"--compress {text!r}: topk needs the fraction of values that travel, above 0 and at "
            "most 1, such as topk:0.01"
        )
    if colon and values not in ("2bit", "exact"):
        raise RequestError(
            f"--compress {text!r}: topk's values travel as 2bit or exact, such as "
            f"topk:{number}:exact"
        )
    return Compression("topk", fraction=fraction, exact=values == "exact")


def _significance(text: str, given: str) -> Compression:
    threshold = _number(given)
    if not 0 <= threshold < math.inf:
        raise RequestError(
            f"--compress {text!r}: significance needs V, the relative change from which a "
            "parameter's update travels, 0 or more, such as significance:0.7"
        )
    return Compression("significance", threshold=threshold)


def _number(text: str) -> float:
    """As it was typed; NaN, which no comparison holds for, if it is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
