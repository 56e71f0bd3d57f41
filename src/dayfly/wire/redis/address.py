"""URLs of Redis servers: `redis://user@host:port/db`, and `rediss://` for TLS."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from dayfly.errors import RequestError, wrong_url

#: Schemes, and whether each is TLS.
SCHEMES = {"redis": False, "rediss": True, "valkey": False, "valkeys": True}
USAGE = "redis://host:port/db"
_PORT = 6379


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is, and whom it is to take us for.

    user: None: the default one. tls: whether TLS is spoken. ca: file with the certificates to
    trust; None: those of the machine, or of SSL_CERT_FILE.
    """

    host: str
    port: int = _PORT
    db: int = 0
    user: str | None = None
    tls: bool = False
    ca: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL. Raises RequestError, in one sentence, if it is none of a Redis server."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _wrong(url, "its host or port is none") from None
        if parts.scheme not in SCHEMES:
            raise _wrong(url, f"its scheme is none of {', '.join(SCHEMES)}")
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
        tls, ca = SCHEMES[parts.scheme], dict(query).get("ca")
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
