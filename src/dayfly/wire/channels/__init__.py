"""Channels by URL: one file a store, and one of what it can do in `kinds`.

A new one is a line in `_BUILT_IN`, or an entry point of another package: its name is the scheme of
the URLs, its value a `ChannelKind`.

    [project.entry-points."dayfly.channels"]
    mine = "my_package.my_module:KIND"
"""

from __future__ import annotations

from dayfly.credentials import PASSWORD_VARIABLE, holds_secret
from dayfly.errors import refuse_control_characters, wrong_url
from dayfly.registry import Registry
from dayfly.wire.channels.kind import ChannelKind
from dayfly.wire.channels.kinds import Direct, DynamoDB, Files, Objects, ParameterServer, Redis

_BUILT_IN: dict[str, ChannelKind | str] = {
    scheme: kind
    for kind in (Files(), Redis(), Objects(), DynamoDB(), ParameterServer(), Direct())
    for scheme in kind.schemes
}
#: Every kind of channel, by the scheme of its URLs.
CHANNELS: Registry[ChannelKind] = Registry("channel", "dayfly.channels", _BUILT_IN)


def channel_kind(url: str) -> ChannelKind:
    """The kind of channel that a URL names. Raises RequestError, in one sentence, if it is none."""
    if holds_secret(url):
        raise wrong_url(
            "channel",
            url,
            "it holds a password or a key, which process lists and run.json would show: leave it "
            f"out, and give it in the environment (a server's password as {PASSWORD_VARIABLE}, "
            "keys of object stores and DynamoDB by the names that their providers have for them)",
        )
    kind = CHANNELS.get(url.partition("://")[0])
    if kind is None:
        known = ", ".join(dict.fromkeys(kind.usage for kind in CHANNELS.values()))
        raise wrong_url("channel", url, f"it is not known: give one of {known}")
    refuse_control_characters("channel", url)
    kind.check(url)
    return kind
