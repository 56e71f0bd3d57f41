"""Rows of the built-in catalogue, read once."""

from __future__ import annotations

from functools import cache

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.prices import FunctionPrices
from dayfly.catalogue.store import StoreFacts


@cache
def platform(name: str) -> FunctionPlatform:
    """A platform."""
    return Catalogue().platform(name)


@cache
def prices(name: str) -> FunctionPrices:
    """Of a platform that has some. Raises ValueError if it has none."""
    found = platform(name).prices
    if found is None:
        raise ValueError(f"the catalogue has no prices of {name}")
    return found


@cache
def store(name: str) -> StoreFacts:
    """A store."""
    return Catalogue().store(name)


def given(value: float | None, what: str) -> float:
    """A value that a row has. Raises ValueError if it has none."""
    if value is None:
        raise ValueError(f"the catalogue has no {what}")
    return value
