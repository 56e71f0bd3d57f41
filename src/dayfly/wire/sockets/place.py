"""Host and port in a URL such as `ps://10.0.0.5:7000`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from dayfly.errors import wrong_url

#: Where servers listen that no URL names a place for: this machine alone reaches them.
LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen; port 0: a free one."""

    host: str = LOOPBACK
    port: int = 0

    @classmethod
    def parse(cls, url: str, usage: str) -> Place:
        """From a URL. Raises RequestError, in one sentence."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise wrong_url("channel", url, f"its host or port is none: give {usage}") from None
        if parts.path or parts.query or parts.fragment or parts.username is not None:
            raise wrong_url("channel", url, f"give {usage}, and nothing else")
        if host is None:
            if parts.netloc:
                raise wrong_url("channel", url, f"it has no host: give {usage}")
            return cls()
        if host in _ANY:
            raise wrong_url("channel", url, f"others cannot connect to {host}: give {usage}")
        return cls(host, port or 0)
