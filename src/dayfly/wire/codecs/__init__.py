"""Codecs: one file a form in which elements travel. Every reader gets the same bits from it."""

from __future__ import annotations

from collections.abc import Callable

from dayfly.wire.codec import Codec
from dayfly.wire.codecs.bf16 import Bf16
from dayfly.wire.codecs.int8 import Int8

#: Codecs by name; none has state.
CODECS: dict[str, Callable[[], Codec]] = {"bf16": Bf16, "int8": Int8}
