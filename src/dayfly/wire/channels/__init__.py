"""Channels by URL: one file a store."""

from __future__ import annotations

from pathlib import Path

from dayfly.errors import RequestError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel, remove_run

#: What `--channel` takes, for help texts and errors.
KNOWN = ("file:///path",)


def check_channel(url: str) -> Path:
    """The directory that a channel's URL names. Raises RequestError for an unknown one."""
    scheme, separator, path = url.partition("://")
    if scheme != "file" or not separator or not path.startswith("/"):
        raise RequestError(f"channel {url!r} is not known: give one of {', '.join(KNOWN)}")
    return Path(path)


def create_channel(
    url: str, namespace: Namespace, *, senders: int, budget_bytes: int, ahead_bytes: int
) -> Channel:
    """Make a channel for ranks 0 to `senders` - 1 and open the coordinator's end of it.

    budget_bytes: bound of its messages, with all that it takes to keep them. ahead_bytes: what a
    rank sends in a step, about. Raises WireError if it cannot be made, or is there already.
    """
    return FileChannel.make(
        check_channel(url),
        namespace,
        senders=senders,
        budget_bytes=budget_bytes,
        ahead_bytes=ahead_bytes,
    )


def open_channel(url: str, namespace: Namespace, reader: int) -> Channel:
    """Open the channel at a URL, which was made before, for one reader (a rank, say)."""
    return FileChannel(check_channel(url), namespace)


def remove_channel(url: str, run: str) -> None:
    """Remove what is left of a run's messages, of any generation; there may be none."""
    remove_run(check_channel(url) / run)
