"""A URL holds no secret: one that does, or cannot be read, is refused and never repeated."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.cli.app import main
from dayfly.credentials import channel_password, holds_secret, shown, without_secrets
from dayfly.errors import DayflyError, RequestError, WireError
from dayfly.planning.ranks import channel_of
from dayfly.runs.settings import Settings
from dayfly.wire.channels import CHANNELS, channel_kind
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.kind import Site
from dayfly.wire.stores import open_store

SECRET = "hunter2xyz"

WRONG = [
    "redis:///u:PW@h/0",
    "redis:/u:PW@h",
    "redis:u:PW@h",
    "redis://u:PW%40h/0",
    "redis://h/0#PW",
    "redis://u%3APW@h",
    "redis://u%253APW@h",
    "redis://u:a/PW@h:1",
    "redis://h:PW",
    "redis://h/PW",
    "redis://[PW",
    "redis://h?password=PW",
    "s3://b?secret=PW",
    "s3://AKIA:PW@bucket/prefix",
    "s3://bucket/p#PW",
    "dynamodb://t?aws_secret_access_key=PW",
    "dynamodb://me:PW@table",
    "ps://u:PW@h:1",
    "ps://h:PW",
    "tcp://h/PW",
    "file://u:PW@h/x",
    "file:///x?token=PW",
    "dir:PW",
    "rediss://u:PW@h?ca=/x",
    "unknown://u:PW@h",
    "PW",
    "u:PW@h",
]


def everything_said(url: str) -> list[str]:
    """The text, representation and traceback of each refusal of the URL. Fails if one takes it."""
    said = []
    for use in (channel_kind, channel_of, open_store, lambda url: Settings(channel=url)):
        try:
            use(url)
        except RequestError as error:
            said += [str(error), repr(error), *traceback.format_exception(error)]
        else:
            # The one looks at the scheme alone, and a store is any path.
            assert use is channel_of or (use is open_store and url.startswith("file:///"))
    return said


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_unrepeated_with_what_is_wanted(url: str) -> None:
    said = everything_said(url.replace("PW", SECRET))
    assert SECRET not in "".join(said)
    assert "give" in said[0]  # what to do


#: What people take for the place of a secret, in any order and number.
pieces = st.lists(
    st.sampled_from(
        [
            *(f"{one}:" for one in sorted(CHANNELS)),
            *("/", "//", "@", ":", "?", "#", "%40", "%3A", "%2F", "[", "]", "=", "&", " ", "\n"),
            *("user", "host", "6379", "0", "password=", "key="),
        ]
    ),
    max_size=8,
)


@given(before=pieces, after=pieces)
@settings(max_examples=100, deadline=None)
@pytest.mark.long
def test_no_broken_url_is_repeated(before: list[str], after: list[str]) -> None:
    """Whatever cannot be read is refused without it; what can has it where no secrets are."""
    url = "".join(before) + SECRET + "".join(after)
    try:
        channel_kind(url)
    except RequestError:
        assert SECRET not in "".join(everything_said(url))
    else:
        assert not holds_secret(url)
        assert "#" not in url or url.startswith(("file:", "dir:"))


@pytest.mark.parametrize("scheme", sorted({*CHANNELS, "redis", "unknown"}))
@pytest.mark.parametrize("user", ["", "me", "me@corp.com"])
def test_a_url_with_a_password_says_where_it_belongs(scheme: str, user: str) -> None:
    with pytest.raises(RequestError, match=rf"'{scheme}://\.\.\.'.* DAYFLY_CHANNEL_PASSWORD"):
        channel_kind(f"{scheme}://{user}:{SECRET}@host:1/path")


@pytest.mark.parametrize("url", ["file:///tmp/me@home", "file:///tmp/a:b@c", "redis://me@host"])
def test_a_url_without_a_secret_is_taken(url: str) -> None:
    channel_kind(url)
    assert without_secrets(f"the channel at {url}") == f"the channel at {url}"


def test_what_is_shown_of_a_url() -> None:
    assert shown("redis://anything at all") == "redis://..."
    assert shown("redis:u:PW@h") == shown("PW") == "..."


def test_an_error_of_any_kind_cuts_a_secret_from_its_text() -> None:
    said = f"--channel 'redis://me:{SECRET}@host' and s3://b?key={SECRET}, but redis://host:1/0"
    for kind in (DayflyError, RequestError, WireError):
        assert str(kind(said)) == "--channel 'redis://...' and s3://... but redis://host:1/0"


@pytest.mark.parametrize("url", ["redis://u:PW%40h/0", "s3://b?secret=PW", "redis:u:PW@h"])
def test_nothing_of_a_refused_command_holds_the_secret(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "job.py").write_text("job = None\n")
    monkeypatch.setattr("sys.argv", ["dayfly", "demo", "--channel", url.replace("PW", SECRET)])
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert ended.value.code == 2
    assert "channel" in said.getvalue()
    assert SECRET not in said.getvalue()
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        assert SECRET.encode() not in Path(f"/proc/{child}/cmdline").read_bytes()


def test_the_password_is_in_the_environment_and_in_no_text() -> None:
    assert channel_password({"DAYFLY_CHANNEL_PASSWORD": SECRET}) == SECRET
    assert channel_password({"DAYFLY_CHANNEL_PASSWORD": ""}) is None
    assert channel_password({}) is None
    site = Site(
        url="redis://host",
        namespace=Namespace("run", 0),
        rendezvous=open_store("file:///tmp"),
        token=SECRET,
        password=SECRET,
    )
    assert SECRET not in repr(site)
