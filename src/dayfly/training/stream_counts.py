"""What was counted of a stream, kept on this machine for whoever reads the same stream again.

    $XDG_CACHE_HOME/dayfly/streams/<identity>.json      else below ~/.cache

A stream is the same if its pickle is, and if all local files that the pickle names have kept size
and time, those of modules included; of a pickle that names none, those in directories that it
names. Paths, functions, seeds and orders drawn from them are in the pickle. One that names a URL
is counted anew each time, unless the URL has a commit, as those of the Hugging Face hub: what is
there may change unseen. The first samples are kept beside the lengths, and compared by whoever
takes them; what changed in spite of all that, readers find at the end of a shard.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickletools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from dayfly.dataclass_json import SHA256, dump, read
from dayfly.errors import RequestError
from dayfly.json_files import cache_folder, parse, read_bytes

Lengths = tuple[int, ...]

#: Longer pickles hold data themselves, and reading these is soon done.
_MOST_BYTES = 8 * 2**20
#: What a process calls its own: classes of cloudpickle's, file systems of fsspec's.
_TOKEN = re.compile(r"[0-9a-f]{32}")
#: The URL of something at a host, and one of a commit.
_URL, _OF_COMMIT = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*/."), re.compile(r"[@/][0-9a-f]{40}(/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCount:
    """Samples of each shard.

    Args:
        lengths: of the shards; of a stream without shards, of all.
        first: digest of the first samples of shards.
    """

    lengths: Lengths
    first: SHA256


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickle of a tensor has the address of its memory; here it has the values."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            return list, (obj.tolist(),)
        return super().reducer_override(obj)


def identity(stream: Any) -> str | None:
    """Returns what only the same stream has, in hexadecimal; None: nothing says so of it.

    Args:
        stream: of which nothing was read.
    """
    into = io.BytesIO()
    try:
        _Pickler(into).dump(stream)
    except Exception:  # whatever an object of the user's raises, it says nothing of itself
        return None
    if len(pickled := into.getvalue()) > _MOST_BYTES:
        return None
    digest, texts = hashlib.sha256(), set()
    for operation, value, _ in pickletools.genops(pickled):
        if isinstance(value, str):
            if _TOKEN.fullmatch(value):
                continue
            texts.add(value)
        digest.update(f"{operation.name} {value!r}\n".encode())
    if any(_URL.match(text) and not _OF_COMMIT.search(text) for text in texts):
        return None
    code = {file for text in texts if (file := getattr(sys.modules.get(text), "__file__", None))}
    data = _paths(texts, os.path.isfile)
    if not data:  # it lists them itself
        data = {file for one in _paths(texts, os.path.isdir) for file in _files_in(one)}
    for file in sorted(code | data):
        with suppress(OSError):  # not every module's file is one, and files may go
            status = os.stat(file)
            digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _paths(texts: Iterable[str], are: Callable[[str], bool]) -> set[str]:
    """Returns what some texts name, as absolute paths; a text may be anything."""
    return {os.path.abspath(text) for text in texts if "\0" not in text and are(text)}


def _files_in(directory: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(directory) as found:
        yield from (one.path for one in found if one.is_file())


def recall(identity: str | None, note: Callable[[str], None]) -> StreamCount | None:
    """Returns what was counted of a stream; None: nothing is kept.

    Args:
        identity: of the stream; None: it has none.
        note: is told of a file that is damaged.
    """
    if identity is None or not (file := _file(identity)).is_file():
        return None
    try:
        return read(StreamCount, parse(read_bytes(file), str(file)), str(file))
    except RequestError as error:
        note(f"{error}; the stream is counted anew")
        return None


def keep(identity: str | None, counted: StreamCount, note: Callable[[str], None]) -> None:
    """Keeps what was counted.

    Args:
        identity: of the stream; None: it has none, and nothing is kept.
        counted: of it.
        note: is told if it cannot be kept.
    """
    if identity is None:
        return
    file = _file(identity)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(dump(counted)))
        beside.replace(file)
    except OSError as error:
        note(f"what was counted of the stream cannot be kept in {file.parent}: {error.strerror}")


def kept_at() -> Path:
    """Returns the directory in which counts are kept."""
    return cache_folder("streams")


def _file(identity: str) -> Path:
    return kept_at() / f"{identity}.json"
