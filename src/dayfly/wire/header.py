"""How long the header of a message is; what it holds is `message`'s."""

from __future__ import annotations

HEADER_BYTES = 128
