"""Channels by URL: one file a store."""

from __future__ import annotations

from pathlib import Path

from dayfly.errors import RequestError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel

#: What `--channel` takes, for help texts and errors.
KNOWN = ("file:///path",)


def check_channel(url: str) -> Path:
    """The directory that a channel's URL names. Raises RequestError for an unknown one."""
    scheme, separator, path = url.partition("://")
    if scheme != "file" or not separator or not path.startswith("/"):
        raise RequestError(f"channel {url!r} is not known: give one of {', '.join(KNOWN)}")
    return Path(path)


def open_channel(url: str, namespace: Namespace, reader: int) -> Channel:
    """Open the channel at a URL for one reader (a rank, or the coordinator)."""
    return FileChannel(check_channel(url), namespace, reader)
