"""Opens a page in a real browser, headless, and reads what became of it.

One browser serves all tests of a process, as its start takes a second and more. It is asked over
two pipes, by the DevTools protocol. Each page has a context of its own, as in a new profile.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Generous: a loaded machine of two cores starts a browser slowly.
WAIT_S = 120.0
#: Time that a page sees: what it has planned is done before it is read.
BUDGET_MS = 4000
_BYTES = 2**16


def program() -> str:
    """The browser. Who may install it must have it; others skip what needs it, with the reason."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found
    reason = "needs a browser: apt-get install --no-install-recommends chromium"
    if os.geteuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)


class Browser:
    """A browser that is started and asked; it ends when its pipes close, also if this process dies.

    Args:
        profile: a directory of its own.
    """

    def __init__(self, profile: str) -> None:
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [
            program(),
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        # The protocol is spoken over descriptors 3 and 4.
        ends = f'exec "$@" 3</proc/self/fd/{theirs_in} 4>/proc/self/fd/{theirs_out}'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", ends, "sh", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._numbers = itertools.count(1)
        self._unread = b""

    def close(self) -> None:
        """Have it end, and wait for that."""
        os.close(self._to)
        os.close(self._from)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(WAIT_S)
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        """What the browser answers; AssertionError if that is an error."""
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": given}
        self._send(asked | ({"sessionId": session} if session else {}))
        answer = self._hear("id", number, session)
        assert "result" in answer, f"{method}: {answer}"
        found: dict[str, Any] = answer["result"]
        return found

    def wait_for(self, event: str, session: str) -> None:
        """Until the page tells of an event that has not been heard yet."""
        self._hear("method", event, session)

    def _send(self, message: dict[str, Any]) -> None:
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._to, left) :]

    def _hear(self, name: str, value: object, session: str | None) -> dict[str, Any]:
        """The next message in which a field has a value; others are passed over."""
        until_s = time.monotonic() + WAIT_S
        while True:
            whole, end, rest = self._unread.partition(b"\0")
            if end:
                self._unread = rest
                message: dict[str, Any] = json.loads(whole)
                if message.get(name) == value and message.get("sessionId") == session:
                    return message
                continue
            left_s = until_s - time.monotonic()
            assert left_s > 0, f"the browser does not say {value} within {WAIT_S:g} s"
            if select.select([self._from], [], [], left_s)[0]:
                more = os.read(self._from, _BYTES)
                assert more, f"the browser has ended, with {self._process.poll()}"
                self._unread += more


@cache
def _browser() -> Browser:
    """That of this process."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    profile = stack.enter_context(tempfile.TemporaryDirectory(prefix="dayfly-test-"))
    browser = Browser(profile)
    stack.callback(browser.close)
    return browser


def opened(page: Path, *, view: str = "", width: int = 1200, dark: bool = False) -> str:
    """The page's elements after its script ran. view: what follows # in the address."""
    browser = _browser()
    context = browser.ask("Target.createBrowserContext")["browserContextId"]
    target = browser.ask("Target.createTarget", url="about:blank", browserContextId=context)
    attached = browser.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    session = attached["sessionId"]
    browser.ask(
        "Emulation.setDeviceMetricsOverride",
        session,
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.ask("Emulation.setEmulatedMedia", session, features=[scheme])
    browser.ask("Page.enable", session)
    browser.ask("Page.navigate", session, url=f"{page.as_uri()}#{view}")
    browser.wait_for("Page.loadEventFired", session)
    browser.ask("Emulation.setVirtualTimePolicy", session, policy="advance", budget=BUDGET_MS)
    browser.wait_for("Emulation.virtualTimeBudgetExpired", session)
    whole = "document.documentElement.outerHTML"
    elements: str = browser.ask("Runtime.evaluate", session, expression=whole)["result"]["value"]
    browser.ask("Target.disposeBrowserContext", browserContextId=context)
    return elements


def said(elements: str, name: str) -> str:
    """What the page wrote about itself: an attribute `data-name` of its root."""
    root = re.search(r"<html[^>]*>", elements)
    assert root is not None, elements[:500]
    found = re.search(rf'data-{name}="([^"]*)"', root.group())
    assert found is not None, f"the page's script did not say {name}: {root.group()}"
    return found.group(1)


def with_script(page: Path, script: str) -> Path:
    """The same page with another script after its own, as a person's hand on it."""
    text = page.read_text()
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    other = page.with_name("handled.html")
    other.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    return other
