"""Passwords come by the environment: a URL with one is refused, and never repeated."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError
from dayfly.runs.settings import Settings
from dayfly.wire.channels import CHANNELS, channel_kind
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.credentials import channel_password, without_secret
from dayfly.wire.channels.kind import Site
from dayfly.wire.store import open_store

SECRET = "hunter2"


@pytest.mark.parametrize("scheme", sorted({*CHANNELS, "redis", "unknown"}))
@pytest.mark.parametrize("user", ["", "me", "me@corp.com"])
def test_a_url_with_a_password_is_refused_without_repeating_it(scheme: str, user: str) -> None:
    url = f"{scheme}://{user}:{SECRET}@host:1/path"
    for use in (channel_kind, lambda url: Settings(channel=url)):
        with pytest.raises(RequestError, match="DAYFLY_CHANNEL_PASSWORD") as refused:
            use(url)
        assert SECRET not in str(refused.value)
        assert "***@host:1/path" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://:{SECRET}@host:1/0", "redis://:***@host:1/0"),
        (f"redis://me:{SECRET}@host", "redis://me:***@host"),
        (f"redis://me:{SECRET}@x@host", "redis://me:***@host"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("file:///tmp/me@home", "file:///tmp/me@home"),
        ("redis://me@host", "redis://me@host"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert without_secret(url) == shown


def test_the_password_is_in_the_environment_and_in_no_text() -> None:
    assert channel_password({"DAYFLY_CHANNEL_PASSWORD": SECRET}) == SECRET
    assert channel_password({"DAYFLY_CHANNEL_PASSWORD": ""}) is None
    assert channel_password({}) is None
    site = Site(
        url="redis://host",
        namespace=Namespace("run", 0),
        rendezvous=open_store("file:///tmp"),
        password=SECRET,
    )
    assert SECRET not in repr(site)
