"""Stores by URL: one file a kind, imported when a URL names it.

A kind of this project is a line in `STORES`. One of another package is an entry point of the group
`dayfly.stores`, whose name is the scheme of its URLs and whose value is as in `STORES`.
"""

from __future__ import annotations

from collections.abc import Callable

from dayfly.credentials import holds_secret
from dayfly.errors import refuse_control_characters, wrong_url
from dayfly.registry import Registry
from dayfly.wire.stores.base import Store

#: What opens a store, by the scheme of its URLs: takes the URL, and raises RequestError.
STORES: Registry[Callable[[str], Store]] = Registry(
    "store",
    "dayfly.stores",
    {
        "file": "dayfly.wire.stores.files:open_files",
        "s3": "dayfly.wire.stores.objects:open_bucket",
        "gs": "dayfly.wire.stores.objects:open_bucket",
        "az": "dayfly.wire.stores.objects:open_bucket",
    },
)
#: What `open_store` takes, for errors.
_KNOWN = "file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"


def open_store(url: str) -> Store:
    """Returns the store at a URL. Connects to nothing yet.

    Raises:
        RequestError: in one sentence; the scheme is not known, the URL is none of its kind, or
            something that it needs is not installed.
    """
    scheme = url.partition("://")[0]
    opener = STORES.get(scheme)
    if opener is None:
        raise wrong_url("store", url, f"it is not known: give one of {_KNOWN}")
    if scheme != "file":  # whose path may hold anything
        if holds_secret(url):
            why = "it holds a password or a key: leave it out, and give it in the environment"
            raise wrong_url("store", url, why)
        refuse_control_characters("store", url)
    return opener(url)
