"""What can go wrong, by who has to act: the request, the run, or the wire."""

from __future__ import annotations

import unicodedata

from dayfly.credentials import shown, without_secrets

#: Categories of Unicode: control characters, separators of lines and paragraphs, lone surrogates.
_NO_LETTERS = ("Cc", "Zl", "Zp", "Cs")


class DayflyError(Exception):
    """Base of all errors that dayfly raises on purpose. Secrets in URLs are cut from its text."""

    def __init__(self, *said: object) -> None:
        super().__init__(*(without_secrets(one) if isinstance(one, str) else one for one in said))


def in_short(error: BaseException) -> str:
    """Another's error in one line: its type, and the first line of its text."""
    lines = str(error).strip().splitlines()
    text = " ".join(lines[0].split()) if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def refuse_control_characters(what: str, text: str) -> None:
    """Raises RequestError for a name with control characters, line breaks or undecodable bytes.

    Args:
        what: names the thing in the error, such as "run directory".
        text: a path or a URL.
    """
    if any(unicodedata.category(letter) in _NO_LETTERS for letter in text):
        why = "it has a control character or a line break in its name: name another"
        raise wrong_url(what, text, why) if ":" in text else RequestError(f"{what} {text!r}: {why}")


class RequestError(DayflyError):
    """The request was wrong; nothing was started. One sentence: what, where, what to do."""


def wrong_url(what: str, url: str, why: str) -> RequestError:
    """Returns the error for a URL that cannot be used; it repeats nothing but the scheme.

    Raise it `from None`, as errors of parsers repeat their input.

    Args:
        what: the option, such as `channel`.
        url: as the user gave it.
        why: what is wrong, and the form that is wanted.
    """
    return RequestError(f"{what} {shown(url)!r}: {why}")


class RunFailed(DayflyError):
    """A run was started and failed; the message is its cause."""


class SureToFail(RunFailed):
    """A run failed with what would come again the same way: to go on with it is of no use."""


class WireError(DayflyError, RuntimeError):
    """A message was missing in time, or was not what its reader expected.

    Programs of torch.distributed know errors of collectives as RuntimeError.
    """


class Forged(WireError):
    """A message is not authentic: it was altered, or is not one of this run's under its key."""


class MessagesRemoved(WireError):
    """The run's messages are gone, and so is the run: what a worker of it does is of no use."""


def named(what: object, error: WireError) -> WireError:
    """Returns another error of the same kind whose text begins with what it is about.

    Always another one, as it is raised from the first: an error may not be its own cause.
    """
    text = str(error)
    return type(error)(text if text.startswith(str(what)) else f"{what}: {text}")


class NoRoom(WireError):
    """A channel is full for now: there is room again once messages are dropped."""


class WaitTimeout(WireError):
    """Nothing arrived within the stated time; the message names what was waited for.

    Attributes:
        source: the rank from which it would have come, if it was one's.
    """

    source: int | None = None
