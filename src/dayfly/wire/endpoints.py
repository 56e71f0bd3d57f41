"""Addresses of stores that the environment gives: whether they are any, before a client chokes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from dayfly.errors import RequestError


def check_endpoints(environment: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise RequestError, in one sentence, if one of these variables is set to no URL."""
    for name in names:
        value = environment.get(name)
        if value is None:
            continue
        try:
            parts = urlsplit(value)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            fits = False
        if not fits:
            raise RequestError(
                f"{name} in the environment is no address of a store: give it as "
                "https://host:port, or unset it"
            )
