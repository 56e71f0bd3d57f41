"""Secrets of channels: they come by the environment, and go nowhere else.

A URL stands in process lists, `run.json`, reports and logs, so it may not hold a password.
Functions have the environment of the command that started them. Object stores and DynamoDB have
customs of their own (AWS_ACCESS_KEY_ID and the like), which their clients follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dayfly.errors import RequestError

#: The environment variable with the password of `--channel`.
PASSWORD_VARIABLE = "DAYFLY_CHANNEL_PASSWORD"
#: Up to the user's name, if any; then the password, which may hold anything.
_PASSWORD = re.compile(r"^([^:/]+://[^:/]*):.+@", re.DOTALL)


def channel_password(environment: Mapping[str, str]) -> str | None:
    """The channel's password, from a process's environment."""
    return environment.get(PASSWORD_VARIABLE) or None


def without_secret(url: str) -> str:
    """A URL that may hold a password, for an error message: with `***` in its place."""
    return _PASSWORD.sub(r"\1:***@", url)


def refuse_secret(url: str) -> None:
    """Raise RequestError, in one sentence that does not repeat it, for a URL with a password."""
    if _PASSWORD.match(url):
        raise RequestError(
            f"channel {without_secret(url)!r} holds a password, which process lists and run.json "
            f"would show: leave it out, and give it as {PASSWORD_VARIABLE} in the environment"
        )
