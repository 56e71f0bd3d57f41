"""Addresses from the environment are checked before a client chokes on them."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError
from dayfly.wire.channels import channel_kind
from dayfly.wire.stores.object_urls import check_endpoints


@pytest.mark.parametrize("value", ["", "localhost:9000", "ftp://x", "http://", "http://[::1"])
def test_what_is_no_address_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", value)
    for url in ("s3://bucket/p", "dynamodb://table"):
        with pytest.raises(RequestError, match="AWS_ENDPOINT_URL in the environment is no address"):
            channel_kind(url)


@pytest.mark.parametrize("value", ["http://127.0.0.1:9000", "https://s3.example.com/path"])
def test_what_is_one_is_taken(value: str) -> None:
    check_endpoints({"A": value}, ("A", "B"))
