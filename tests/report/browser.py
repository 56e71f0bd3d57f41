"""Opens a page in a real browser, headless, and reads what became of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Generous: a loaded machine of two cores starts a browser slowly.
WAIT_S = 120.0


def program() -> str:
    """The browser. Who may install it must have it; others skip what needs it, with the reason."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found
    reason = "needs a browser: apt-get install --no-install-recommends chromium"
    if os.geteuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)


def opened(
    page: Path, profile: Path, *, view: str = "", width: int = 1200, dark: bool = False
) -> str:
    """The page's elements after its script ran. view: what follows # in the address."""
    command = [
        program(),
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        f"--user-data-dir={profile}",
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        # Time that the page sees: what it has planned is done before the browser looks.
        "--virtual-time-budget=4000",
        "--dump-dom",
        f"{page.as_uri()}#{view}",
    ]
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return done.stdout


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
