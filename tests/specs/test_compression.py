"""What `--compress` takes, and the bytes that it says will travel."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError
from dayfly.specs.compression import Compression, compression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", Compression()),
        ("bf16", Compression("bf16")),
        ("int8", Compression("int8")),
        ("powersgd", Compression("powersgd", 4)),
        ("powersgd:8", Compression("powersgd", 8)),
        ("topk:0.01", Compression("topk", fraction=0.01)),
        ("topk:1", Compression("topk", fraction=1.0)),
        ("topk:1e-3:2bit", Compression("topk", fraction=0.001)),
        ("topk:0.5:exact", Compression("topk", fraction=0.5, exact=True)),
        ("significance:0", Compression("significance")),
        ("significance:0.7", Compression("significance", threshold=0.7)),
    ],
)
def test_what_compress_takes(text: str, expected: Compression) -> None:
    assert compression(text) == expected


@pytest.mark.parametrize(
    "text", ["", "fp8", "int8:4", "powersgd:", "powersgd:0", "powersgd:-1", "powersgd:x", "none:"]
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"--compress .* is not known: give one of none, bf16"):
        compression(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((f"topk{one}", "above 0 and at most 1, such as topk:0.01") for one in (
            "", ":", ":0", ":2", ":-0.1", ":abc", ":nan", ":inf"
        )),
        ("topk:0.1:4bit", "topk's values travel as 2bit or exact, such as topk:0.1:exact"),
        ("topk:0.1:", "topk's values travel as 2bit or exact"),
        *((f"significance{one}", "0 or more, such as significance:0.7") for one in (
            "", ":", ":-1", ":abc", ":nan", ":inf"
        )),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        compression(text)
    assert str(refused.value).startswith(f"--compress {text!r}: ")
    assert words in str(refused.value)


def test_who_keeps_a_residual_and_whose_messages_have_another_form() -> None:
    found = {
        text: (compression(text).feeds_back, compression(text).codec)
        for text in ("none", "bf16", "int8", "powersgd", "topk:0.1", "significance:1")
    }
    assert found == {
        "none": (False, None),
        "bf16": (False, "bf16"),
        "int8": (True, "int8"),
        "powersgd": (False, None),
        "topk:0.1": (True, "sparse"),
        "significance:1": (True, "sparse"),
    }


def test_bytes_of_contributions_and_of_their_sums() -> None:
    million = 2**20
    assert compression("bf16").travelling_bytes(million, 4) == 2 * million
    assert compression("int8").travelling_bytes(million) == million + 4 * million // 256
    topk = compression("topk:0.01")
    sizes = [topk.travelling_bytes(million, terms) for terms in (1, 2, 3, 4, 1000)]
    # Of each chunk 41 values: 12 bits of a place, 2 of a value, and 12 bytes.
    assert sizes[0] == pytest.approx(million / 4096 * (41 * 14 / 8 + 12), rel=0.01)
    assert sizes == sorted(sizes)
    assert sizes[-1] == 4 + 4 * million, "as large as all of it, and no larger"
    exact = compression("topk:0.01:exact").travelling_bytes(million)
    assert exact == pytest.approx(million / 4096 * (41 * 44 / 8 + 2), rel=0.01)


@pytest.mark.parametrize("text", ["none", "powersgd", "significance:0.7"])
def test_bytes_that_nobody_knows_before(text: str) -> None:
    with pytest.raises(ValueError, match="bytes of"):
        compression(text).travelling_bytes(100)
    assert compression(text).known_bytes is (text == "none")
