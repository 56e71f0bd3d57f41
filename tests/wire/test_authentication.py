"""AES-GMAC of messages: every bit counts, and pieces make no difference."""

from __future__ import annotations

import pytest
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import Forged
from dayfly.wire.authentication import Authenticator, new_token
from dayfly.wire.keys import COORDINATOR, SERVER, Key
from dayfly.wire.message import Header

TOKEN = "a7" * 32
KEY = Key(3, "grad-part", 2, 1)
BY = Authenticator(TOKEN, "run", 0)


def message(size: int, key: Key = KEY, by: Authenticator = BY) -> tuple[bytes, bytes]:
    payload = bytes(number % 251 for number in range(size))
    header = Header(key.operation, torch.uint8, (size,))
    return header.seal(memoryview(payload), key, by), payload


@pytest.mark.parametrize("size", [0, 1, 40])
def test_any_bit_that_changes_is_noticed(size: int) -> None:
    header, payload = message(size)
    BY.check(KEY, header, memoryview(payload))
    for bit in range(8 * (len(header) + size)):
        whole = bytearray(header + payload)
        whole[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Forged, match=f"^{KEY}: the message is not authentic"):
            BY.check(KEY, whole[:128], memoryview(whole)[128:])


@pytest.mark.parametrize("size", [0, 100, 16 * 1024, 16 * 1024 + 1, 3 * 2**20 + 5])
def test_it_is_gmac_of_key_header_and_payload(size: int) -> None:
    """By the definition, in one call, whatever the size: NIST SP 800-38D, section 3."""
    header, payload = message(size)
    secret = BY._derived(f"messages from {KEY.source}")
    assert len(secret) == 32
    tag = AESGCM(secret).encrypt(header[100:112], b"", KEY.pack() + header[:100] + payload)
    assert header[112:] == tag


@given(st.lists(st.integers(0, 9000), max_size=6))
def test_pieces_make_no_difference(sizes: list[int]) -> None:
    header, payload = message(sum(sizes))
    checking = BY.checking(KEY, header, len(payload))
    at = 0
    for size in sizes:
        checking.update(memoryview(payload)[at : at + size])
        at += size
    checking.finish()


def test_each_run_generation_and_sender_has_a_key_of_its_own() -> None:
    others = [
        Authenticator(new_token(), "run", 0),
        Authenticator(TOKEN, "run", 1),
        Authenticator(TOKEN, "run2", 0),
    ]
    secrets = {one.handshake for one in (BY, *others)}
    secrets |= {one._derived("messages from 2").hex() for one in (BY, *others)}
    secrets |= {BY._derived(f"messages from {n}").hex() for n in (0, COORDINATOR, SERVER)}
    assert len(secrets) == 11
    header, payload = message(10)
    for other in others:
        with pytest.raises(Forged):
            other.check(KEY, header, memoryview(payload))


def test_a_token_is_256_bits_and_new_each_time() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert len(bytes.fromhex(new_token())) == 32
