"""Where the stores' conformance suite runs: one line of `PLACES` a store.

DAYFLY_TEST_STORE names a store of your own, such as s3://bucket/prefix at a radosgw, for the suite
to run in as well; AWS_ENDPOINT_URL and the like are then as this process was started with.
"""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache

import pytest

from dayfly.wire.shaped import ShapedStore
from dayfly.wire.shaping import Rates, ShapedLink
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store
from tests.channels.kit import kept_port
from tests.channels.store_places import in_environment, shared_moto
from tests.store.azurite import azurite
from tests.store.google_form import google_server
from tests.store.radosgw import radosgw


@contextmanager
def files(parent: str | None = None) -> Iterator[Store]:
    """A directory; None: on the normal disk."""
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", dir=parent) as root:
        yield open_store(f"file://{root}/root")


@contextmanager
def shaped() -> Iterator[Store]:
    """The same behind a line, at rates that nobody notices."""
    with files("/dev/shm") as store:
        fast = Rates(up_bytes_per_s=1e12, down_bytes_per_s=1e12, latency_s=1e-6)
        yield ShapedStore(store, ShapedLink(fast))


_NUMBERS = itertools.count()


@contextmanager
def s3() -> Iterator[Store]:
    """A prefix in a bucket at moto's server."""
    with in_environment(shared_moto().environment):
        yield open_store(f"s3://dayfly/stores/{next(_NUMBERS)}")


@contextmanager
def google() -> Iterator[Store]:
    """A bucket that takes what Google publishes, and nothing else."""
    with google_server() as (bucket, environment), in_environment(environment):
        yield open_store("gs://bucket/stores")
        assert bucket.wrong == []


@cache
def _shared_azurite() -> Mapping[str, str]:
    """One server for all tests of this process; it ends with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    with kept_port() as port:
        pass
    return stack.enter_context(azurite(port))


@contextmanager
def azure() -> Iterator[Store]:
    """A prefix in a container at azurite."""
    with in_environment(_shared_azurite()):
        yield open_store(f"az://dayfly/stores/{next(_NUMBERS)}")


@cache
def _shared_radosgw() -> Mapping[str, str]:
    """One server for all tests of this process; it ends with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(radosgw())


@contextmanager
def ceph() -> Iterator[Store]:
    """A prefix in a bucket at radosgw."""
    with in_environment(_shared_radosgw()):
        yield open_store(f"s3://dayfly/stores/{next(_NUMBERS)}")


@contextmanager
def own(url: str) -> Iterator[Store]:
    """A prefix in a bucket of your own, emptied at the end."""
    store = open_store(f"{url.rstrip('/')}/dayfly-test-{os.getpid()}-{next(_NUMBERS)}")
    try:
        yield store
    finally:
        store.clear()


#: Every store, by the name that its tests carry. To test a new one, add its line.
PLACES = [
    pytest.param(lambda: files("/dev/shm"), id="files-tmpfs"),
    pytest.param(google, id="google"),
    pytest.param(files, id="files-disk", marks=pytest.mark.long),
    pytest.param(shaped, id="files-shaped", marks=pytest.mark.long),
    pytest.param(s3, id="s3", marks=pytest.mark.long),
    # Servers that are not installed by pip; the suite has the same client over moto and Google.
    pytest.param(azure, id="azure", marks=pytest.mark.slow),
    pytest.param(ceph, id="radosgw", marks=pytest.mark.slow),
]
if named := os.environ.get("DAYFLY_TEST_STORE"):
    PLACES.append(pytest.param(lambda: own(named), id="own"))
