"""What is secret, how it comes in, and what may be shown of a text that may hold it.

Process lists, `run.json`, reports, logs and errors show URLs, so a URL holds no secret: passwords
and keys come by the environment. A URL that was parsed has no room for a secret, and is shown as it
is. Any other one may hold a secret anywhere, so only its scheme is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

#: The environment variable with the password of `--channel`.
PASSWORD_VARIABLE = "DAYFLY_CHANNEL_PASSWORD"

_SCHEME = re.compile(r"([a-z][a-z0-9+-]{0,11})://")
#: Before the host, as URLs have it: user and password, which may hold anything.
_USER = re.compile(r"[^/]*:.*@", re.DOTALL)
#: Parameters that are called as secrets are.
_PARAMETER = re.compile(
    r"[?&;#,][\w.-]*(pass|pwd|secret|token|key|cred|auth|sig)[\w.-]*=", re.IGNORECASE
)
#: A URL within a text, as far as quotes and white space let one tell.
_IN_TEXT = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*:/[^\s'\"]*")


def channel_password(environment: Mapping[str, str]) -> str | None:
    """The channel's password, from a process's environment."""
    return environment.get(PASSWORD_VARIABLE) or None


def shown(url: str) -> str:
    """Returns what an error may show of a URL that nobody has parsed: its scheme, if it has one."""
    scheme = _SCHEME.match(url)
    return f"{scheme[1]}://..." if scheme is not None else "..."


def holds_secret(url: str) -> bool:
    """Whether a URL has a password before its host, or a parameter named as secrets are.

    Also if that is percent-encoded, or the slashes after the scheme are missing or too many.
    """
    text = unquote(unquote(url))
    scheme, _, rest = text.partition(":")
    is_path = scheme in ("file", "dir") and rest.startswith("///")  # it may hold anything else
    return bool(_PARAMETER.search(rest) or (not is_path and _USER.match(rest.lstrip("/"))))


def without_secrets(text: str) -> str:
    """Returns a text for people with every URL that holds a secret cut down to its scheme."""
    if ":/" not in text:
        return text
    return _IN_TEXT.sub(lambda found: shown(found[0]) if holds_secret(found[0]) else found[0], text)
