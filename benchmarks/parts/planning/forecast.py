"""Profiles, and what they predict of the configurations."""

from typing import Any


def profile(*a: Any) -> Any:
    raise NotImplementedError


def forecast(*a: Any) -> Any:
    raise NotImplementedError
