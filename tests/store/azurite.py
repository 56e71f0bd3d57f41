"""Azurite, Microsoft's own server of Azure's Blob interface for tests (npm install azurite)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

#: The account that every azurite has, and its key, both published by Microsoft.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_COMMAND = "azurite-blob"
_START_S = 60.0


@contextmanager
def azurite(port: int) -> Iterator[Mapping[str, str]]:
    """A server with the container `dayfly`; yields the environment in which clients find it."""
    command = shutil.which(_COMMAND)
    if command is None:
        pytest.skip(f"{_COMMAND} is not installed: npm install azurite, and put it on the PATH")
    with tempfile.TemporaryDirectory(prefix="dayfly-azurite-") as place:
        process = subprocess.Popen(
            [command, "--blobPort", str(port), "--location", place, "--skipApiVersionCheck"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}/{ACCOUNT}"
            until = time.monotonic() + _START_S
            while not _made(url, "dayfly"):
                assert time.monotonic() < until, f"azurite did not start within {_START_S:g} s"
                time.sleep(0.1)
            yield {
                "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                "AZURE_STORAGE_ENDPOINT": url,
            }
        finally:
            process.kill()
            process.wait()


def _made(url: str, container: str) -> bool:
    """Makes a container by one signed request; whether the server answered."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    path = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    text = f"PUT{chr(10) * 12}{lines}{path}"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = Request(f"{url}/{container}?restype=container", method="PUT", headers=headers)
    try:
        with urlopen(request):
            return True
    except URLError as error:
        if getattr(error, "code", None) is None:
            return False
        raise
