"""A store that is gone afterwards, also within one example of hypothesis."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from dayfly.wire.stores.files import FileStore


@contextmanager
def new_store() -> Iterator[FileStore]:
    """An empty store in memory, which does not wait for a disk."""
    with (
        tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm") as root,
        mock.patch.object(os, "fsync"),
    ):
        yield FileStore(Path(root))
