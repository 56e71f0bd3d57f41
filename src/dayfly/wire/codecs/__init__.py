"""Codecs: one file a form in which elements travel. Every reader gets the same bits from it."""

from __future__ import annotations

from collections.abc import Callable

from dayfly.wire.codec import Codec


# They are imported when they are made: they need torch, and whoever asks for names does without.
def _bf16() -> Codec:
    from dayfly.wire.codecs.bf16 import Bf16

    return Bf16()


def _int8() -> Codec:
    from dayfly.wire.codecs.int8 import Int8

    return Int8()


#: Codecs by name; none has state.
CODECS: dict[str, Callable[[], Codec]] = {"bf16": _bf16, "int8": _int8}
