"""Ceph's radosgw, a real server of S3's interface: a monitor, one OSD in memory, a gateway.

Debian has it: apt-get install --no-install-recommends radosgw ceph-mon ceph-osd.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.channels.kit import kept_port

_COMMANDS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "osdmaptool")
_START_S = 180.0
_CONFIGURATION = """
[global]
fsid = {fsid}
mon host = {address}
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
osd objectstore = memstore
memstore device bytes = 1073741824
osd memory target = 939524096
ms mon client mode = crc
run dir = {place}
log file = {place}/$name.log
mon data = {place}/mon
osd data = {place}/osd
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""


@contextmanager
def radosgw() -> Iterator[Mapping[str, str]]:
    """A cluster with the bucket `dayfly`; yields the environment in which clients find it."""
    absent = [command for command in _COMMANDS if shutil.which(command) is None]
    if absent:
        pytest.skip(f"{absent[0]} is not installed: apt-get install radosgw ceph-mon ceph-osd")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dayfly-radosgw-"))
        place = Path(folder)
        with kept_port() as one, kept_port() as other, kept_port() as port:
            pass
        address, fsid = f"[v2:127.0.0.1:{one},v1:127.0.0.1:{other}]", str(uuid.uuid4())
        text = _CONFIGURATION.format(fsid=fsid, address=address, place=place, port=port)
        (place / "ceph.conf").write_text(text)
        for name in ("mon", "osd"):
            (place / name).mkdir()

        def run(*command: str) -> str:
            return subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=_START_S
            ).stdout

        def start(*command: str) -> None:
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
            stack.callback(process.wait)
            stack.callback(process.kill)

        configured = ("-c", f"{place}/ceph.conf")
        maps = f"{place}/monmap", f"{place}/osdmap"
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, maps[0])
        run("osdmaptool", "--createsimple", "1", maps[1], "--pg-bits", "2")
        run("ceph-mon", *configured, "-i", "a", "--mkfs", "--monmap", maps[0], "--osdmap", maps[1])
        start("ceph-mon", *configured, "-i", "a", "-f")
        run("ceph-osd", *configured, "-i", "0", "--mkfs")
        start("ceph-osd", *configured, "-i", "0", "-f")
        user = ("user", "create", "--uid", "dayfly", "--display-name", "dayfly")
        told = run("radosgw-admin", *configured, "-n", "client.rgw", *user)
        start("radosgw", *configured, "-n", "client.rgw", "-f")
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + _START_S
        while not _answers(url):
            assert time.monotonic() < until, f"radosgw did not start within {_START_S:g} s"
            time.sleep(0.2)
        (key,) = json.loads(told)["keys"]
        environment = {
            "AWS_ACCESS_KEY_ID": key["access_key"],
            "AWS_SECRET_ACCESS_KEY": key["secret_key"],
            "AWS_REGION": "default",
            "AWS_ENDPOINT_URL": url,
        }
        _make_bucket("dayfly", environment)
        yield environment


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=10).close()
    except HTTPError:
        return True
    except (URLError, OSError):
        return False
    return True


def _make_bucket(name: str, environment: Mapping[str, str]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )
    client.create_bucket(Bucket=name)
    client.close()
