"""Object stores by URL, and what obstore's errors come to; for channels and for stores.

    s3://bucket/prefix      AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL
    gs://bucket/prefix      GOOGLE_APPLICATION_CREDENTIALS
    az://container/prefix   AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY
    dir:///path             a directory, through the same client

Credentials come from the environment, in the names that each provider has for them, or from the
machine that asks (a role of a function or a node). obstore reads no ~/.aws.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dayfly.errors import RequestError, wrong_url
from dayfly.wire.outages import Cause, Trouble

if TYPE_CHECKING:
    from obstore.store import ObjectStore

OBJECT_SCHEMES = ("s3", "gs", "az", "dir")

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*")
#: Environment variables with which users name an endpoint of their own.
ENDPOINTS = (
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_BASE_URL",
)
# A stalled connection ends; a large object may take long, as long as its bytes move.
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "300s"}

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_MESSAGE = re.compile(r'message: "([\w ,.()-]{1,80})"')
_METADATA = ("169.254.169.254", "metadata.google.internal", "metadata.goog")
#: Statuses and codes that pass: too many requests, a conflict of two puts at once, a time-out.
_PASSING_STATUSES = {"408", "409", "425", "429"}
#: Codes of stores that have no room.
_FULL_CODES = {"QuotaExceeded", "InsufficientCapacity", "XMinioStorageFull", "AccountStorageFull"}
_PASSING_CODES = {"SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted"}


@dataclass(frozen=True, slots=True)
class ObjectURL:
    """Where objects are.

    Args:
        bucket: "" for a directory, whose path is the prefix.
    """

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str, what: str = "channel") -> ObjectURL:
        """Raises RequestError, in one sentence, for a URL that names no place for objects.

        Args:
            what: the URL is of, such as a channel.
        """
        scheme, _, rest = url.partition("://")
        if scheme == "dir":
            if not rest.startswith("/"):
                raise wrong_url(what, url, "give an absolute path, as in dir:///path")
            return cls(scheme, "", rest)
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.rstrip("/")
        if not _BUCKET.fullmatch(bucket):
            raise wrong_url(what, url, f"give a bucket, as in {scheme}://bucket/prefix")
        parts = prefix.split("/")
        if prefix and (not _PREFIX.fullmatch(prefix) or "." in parts or ".." in parts):
            raise wrong_url(
                what,
                url,
                "what follows the bucket is no prefix of names of objects: give letters, digits, "
                f"'/' and any of !_.*'()-, as in {scheme}://bucket/some/prefix",
            )
        return cls(scheme, bucket, prefix)

    @property
    def url(self) -> str:
        """What `parse` makes the place of."""
        return f"{self.scheme}://{self.bucket}{self._slash}{self.prefix}"

    @property
    def _slash(self) -> str:
        return "/" if self.prefix and self.bucket else ""

    def below(self, folder: str) -> ObjectURL:
        """Returns the place of the objects below a folder."""
        return replace(self, prefix=f"{self.prefix}/{folder}" if self.prefix else folder)

    @property
    def root(self) -> Path | None:
        """The directory, if it is one."""
        return Path(self.prefix) if self.scheme == "dir" else None


def check_usable(environment: Mapping[str, str]) -> None:
    """Raises RequestError if obstore is missing, or an endpoint in the environment is no URL."""
    if find_spec("obstore") is None:
        raise RequestError("object stores need obstore: pip install obstore")
    check_endpoints(environment, ENDPOINTS)


def open_objects(
    place: ObjectURL, environment: Mapping[str, str], *, tries: int = 1
) -> ObjectStore:
    """A client for the objects below a place. Connects to nothing yet.

    Args:
        tries: of each request, where this program cannot try a part of an object again by itself.
    """
    # Here, as it is optional; and its threads must not be there before a function is forked.
    from obstore import store

    if place.root is not None:
        return store.LocalStore(place.root, mkdir=True)
    # Without TLS only where the user says so.
    plain = any(environment.get(name, "").startswith("http://") for name in ENDPOINTS)
    options: dict[str, Any] = {
        "prefix": place.prefix or None,
        "client_options": {**_TIMEOUTS, "allow_http": plain},
        "retry_config": {"max_retries": tries - 1},
    }
    if place.scheme == "s3":
        # Messages have checksums of their own.
        return store.S3Store(place.bucket, config={"unsigned_payload": True}, **options)
    if place.scheme == "gs":
        return store.GCSStore(place.bucket, **options)
    return store.AzureStore(place.bucket, **options)


def trouble_of(error: Exception) -> Trouble | None:
    """What one of obstore's errors comes to, without secrets; None if it is not one of them.

    obstore shows what the store answered, which may hold keys and signatures: only the status, the
    code and a word about the connection are taken from it.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    if not isinstance(error, (BaseError, OSError)):
        return None
    text = str(error)
    status, code, message = (_first(found, text) for found in (_STATUS, _CODE, _MESSAGE))
    said = code or (f"HTTP {status}" if status else message) or type(error).__name__
    if any(host in text for host in _METADATA):
        return Trouble(
            f"no credentials were found ({said}): give them in the environment, for S3 as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (from a profile: "
            "aws configure export-credentials --format env), for Google as "
            "GOOGLE_APPLICATION_CREDENTIALS",
            passing=True,
            cause=Cause.DENIED,
        )
    if status == "507" or code in _FULL_CODES:
        text = f"it has no room ({said}): remove objects, or raise its quota"
        return Trouble(text, passing=False, cause=Cause.FULL)
    if status == "416" or "InvalidRange" in text:
        return Trouble(f"it ends earlier ({said})", passing=False, cause=Cause.BEYOND)
    denied = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
    if denied or status in ("401", "403"):
        return Trouble(
            f"access is denied ({said}): check the credentials in the environment, and that they "
            "may get, put, delete and list objects",
            passing=False,
            cause=Cause.DENIED,
        )
    if code in ("NoSuchBucket", "ContainerNotFound") or (
        isinstance(error, FileNotFoundError) and status == "404"
    ):
        return Trouble(f"there is no such bucket ({said}): make it, or name another", passing=False)
    if (status or "").startswith("3") or "redirect without LOCATION" in text:
        text = f"the bucket is elsewhere ({said}): set AWS_REGION to its region"
        return Trouble(text, passing=False)
    refused = status is not None and status.startswith("4")
    passing = not refused or status in _PASSING_STATUSES or code in _PASSING_CODES
    if passing:
        return Trouble(f"it does not answer ({said})", passing=True)
    return Trouble(f"it refuses ({said})", passing=False, cause=Cause.REFUSED)


def conflicts(error: Exception) -> bool:
    """Whether a put met another put of the key under way, of which nobody knows who wins."""
    return _first(_CODE, str(error)) in _PASSING_CODES


def _first(found: re.Pattern[str], text: str) -> str | None:
    match = found.search(text)
    return match.group(1) if match is not None else None


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
