"""Imports what makes and opens all channels: once, where functions are forked, and not in each."""

from __future__ import annotations

import dayfly.wire.channels.spread  # noqa: F401
from dayfly.wire.channels import CHANNELS

for kind in CHANNELS.values():
    kind.factory()
