"""A Redis server: its URL, and checks of whether it can carry the messages of a run.

URLs are `redis://user@host:port/db`, and `rediss://` for TLS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from dayfly.errors import RequestError, WireError, wrong_url

#: Schemes, and whether each is TLS.
REDIS_SCHEMES = {"redis": False, "rediss": True, "valkey": False, "valkeys": True}
USAGE = "redis://host:port/db"
_PORT = 6379


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where a server is, and whom it is to take us for.

    Args:
        user: None: the default one.
        tls: whether TLS is spoken.
        ca: file with the certificates to trust; None: those of the machine, or of SSL_CERT_FILE.
    """

    host: str
    port: int = _PORT
    db: int = 0
    user: str | None = None
    tls: bool = False
    ca: str | None = None

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Read a URL. Raises RequestError, in one sentence, if it is none of a Redis server."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _wrong(url, "its host or port is none") from None
        if parts.scheme not in REDIS_SCHEMES:
            raise _wrong(url, f"its scheme is none of {', '.join(REDIS_SCHEMES)}")
        if not host:
            raise _wrong(url, "the host is missing")
        if port == 0:
            raise _wrong(url, "0 is no port")
        db = parts.path.strip("/")
        if not (db == "" or (db.isascii() and db.isdigit() and len(db) < 10)):
            raise _wrong(url, "the database is no number")
        query = parse_qsl(parts.query, keep_blank_values=True)
        if parts.fragment or [name for name, value in query if name != "ca" or not value]:
            raise _wrong(url, "only ?ca=/path/of/certificates may follow")
        tls, ca = REDIS_SCHEMES[parts.scheme], dict(query).get("ca")
        if ca is not None and not tls:
            raise _wrong(url, "certificates are for rediss://")
        user = unquote(parts.username) if parts.username else None
        return cls(host=host, port=port or _PORT, db=int(db or 0), user=user, tls=tls, ca=ca)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis at {host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The password, if there is one, and the environment variable by which it is given."""

    variable: str
    password: str | None = field(default=None, repr=False)


def _wrong(url: str, what: str) -> RequestError:
    return wrong_url("channel", url, f"{what}; give {USAGE}, or rediss:// for TLS")


#: The first version with streams.
_LEAST = (5, 0)
_MIB = 2**20


def read_info(text: str) -> dict[str, str]:
    """The lines `name:value` of what the command INFO replies."""
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}


def check_server(address: RedisAddress, info: Mapping[str, str], budget_bytes: int) -> None:
    """Checks that the server can hold so many bytes of messages until they are dropped.

    A memory limit with an eviction policy is refused. Redis would remove keys as it likes, ours
    among the first, as they expire, and a message that is lost ends the run.

    Raises:
        WireError: the server cannot.
    """
    version = info.get("redis_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _LEAST:
        raise WireError(
            f"{address} is version {version or 'unknown'}, which has no streams: use 5.0 or newer"
        )
    if info.get("role", "master") != "master":
        raise WireError(f"{address} is a replica, which takes no messages: give its primary")
    limit_bytes = _number(info, "maxmemory")
    if not limit_bytes:
        return
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise WireError(
            f"{address} would throw messages away when its memory is full (maxmemory-policy "
            f"{policy}): set it to noeviction, or use another server"
        )
    free_bytes = limit_bytes - _number(info, "used_memory")
    if free_bytes < budget_bytes:
        raise WireError(
            f"{address} has {max(0, free_bytes) // _MIB} MiB left under its maxmemory, and the "
            f"message log may take {-(-budget_bytes // _MIB)} MiB: raise maxmemory, or give a "
            "smaller --log-budget"
        )


def cpu_s(info: Mapping[str, str]) -> float | None:
    """Seconds of the thread that serves everybody; before version 6.2, of the whole server."""
    for of in ("_main_thread", ""):
        parts = [info.get(f"used_cpu_{side}{of}") for side in ("user", "sys")]
        if all(parts):
            return sum(float(part) for part in parts if part)
    return None


def _number(info: Mapping[str, str], name: str) -> int:
    text = info.get(name, "0")
    return int(text) if text.isdigit() else 0
