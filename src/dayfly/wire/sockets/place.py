"""Host and port in a URL such as `ps://10.0.0.5:7000`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from dayfly.errors import RequestError

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
        says = f"channel {url!r}: give {usage}"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise RequestError(f"{says} ({error})") from error
        if parts.path or parts.query or parts.fragment or parts.username is not None:
            raise RequestError(f"{says}, and nothing else")
        if host is None:
            if parts.netloc:
                raise RequestError(f"{says}: it has no host")
            return cls()
        if host in _ANY:
            raise RequestError(f"{says}: others cannot connect to {host}")
        return cls(host, port or 0)
