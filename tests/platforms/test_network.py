"""Functions of the local platform in network namespaces of the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.parts import namespaces
from platform_testing import call, wait_for_all

from dayfly.errors import RequestError
from dayfly.life.platforms.base import Opening, Outcome, platform_options
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.platforms.network import namespace_of, namespaces_of
from dayfly.life.sessions import Session


def test_functions_are_spread_over_the_namespaces_by_their_numbers() -> None:
    assert [namespace_of(number, ["a", "b"]) for number in range(4)] == ["a", "b", "a", "b"]
    assert namespace_of(3, ()) is None
    assert namespaces_of(None) == ()


@pytest.mark.parametrize("name", ["", "no-such-one", "../../proc/self/ns/net", "/etc", ".", "a,,b"])
def test_what_is_no_namespace_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="there is no such network namespace"):
        namespaces_of(name)


@pytest.fixture
def two() -> Iterator[list[str]]:
    names = [namespaces.name_of(part) for part in ("a", "b")]
    try:
        for name in names:
            namespaces.do("ip", "netns", "add", name)
        yield names
    finally:
        for name in names:
            namespaces.remove(name)


@pytest.mark.long
@pytest.mark.skipif(not namespaces.possible(), reason="network namespaces need root, ip and tc")
def test_a_function_is_in_its_namespace(
    two: list[str], tmp_path: Path, session_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.stat("/proc/self/ns/net").st_ino
    theirs = [os.stat(f"/run/netns/{name}").st_ino for name in two]
    with Session.open(session_base) as session:
        opening = Opening(session=session, logs=tmp_path, preload=["platform_handlers"])
        options = platform_options("local", {"netns": ",".join(two)})
        with LocalPlatform.open(opening, options) as platform:
            names = ["worker-0", "worker-1", "successor-2"]
            for name in names:
                platform.invoke(call(name, "network"))
            ended = wait_for_all(platform, names)
            found = [(ended[name].result or {})["inode"] for name in names]
            assert found == [theirs[0], theirs[1], theirs[0]]
            namespaces.remove(two[0])
            platform.invoke(call("worker-2", "network", attempt=1))
            lost = wait_for_all(platform, ["worker-2"])["worker-2"]
            assert (lost.outcome, two[0] in (lost.error or "")) == (Outcome.RAISED, True)
        assert os.stat("/proc/self/ns/net").st_ino == here
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(RequestError, match="only root may enter"):
            LocalPlatform.open(opening, platform_options("local", {"netns": two[1]}))
