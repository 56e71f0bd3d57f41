"""AES-GMAC of messages, for channels that others can write to: over their key and all their bytes.

    token                            256 bits, new for each coordinator; travels in invocations
      HMAC-SHA256(token, purpose)    an AES-256 key for each run, generation and sender
        AES-GMAC(key, nonce, ...)    of one message: its key (step, operation, source, destination),
                                     the covered bytes of its header, its payload

So a message that was altered, or put under another key than its own, or taken over from another run
or generation, is refused, and so is whatever a stranger writes. A nonce is 96 random bits (NIST SP
800-38D, section 8.2.2), as a worker that starts again may put other bytes under the same key; a
sender may use a key 2^32 times. What is sealed is not encrypted.

This module is imported by servers, so it does without torch.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dayfly.errors import Forged
from dayfly.wire.keys import COVERED_BYTES, HEADER_BYTES, Key

NONCE_BYTES = 12
#: Up to here a payload is copied behind its key and header, for one call in place of several: a
#: context costs 6 microseconds, a call 1.
_SMALL_BYTES = 16 * 1024
#: Larger ones are read in pieces that stay in the processor's cache.
_PIECE_BYTES = 2**20


def new_token() -> str:
    """Returns a token: 256 random bits, in hexadecimal digits."""
    return secrets.token_hex(32)


class Authenticator:
    """Seals and checks the messages of one generation of a run. Safe from any thread.

    Args:
        token: of the coordinator, see `new_token`.
        run, generation: of the messages.
    """

    def __init__(self, token: str, run: str, generation: int) -> None:
        self._token = bytes.fromhex(token)
        self._where = f"{run}/{generation}"
        self._senders: dict[int, tuple[AESGCM, algorithms.AES]] = {}

    @property
    def handshake(self) -> str:
        """The secret by which the ends of a connection know each other; see `sockets.protocol`."""
        return self._derived("handshake").hex()

    def seal(self, key: Key, covered: bytes, payload: memoryview) -> bytes:
        """Returns the whole header of a message.

        Args:
            covered: the header's bytes before its seal.
        """
        nonce = os.urandom(NONCE_BYTES)
        checking = self._begin(key, covered, nonce, payload.nbytes)
        checking.update(payload)
        return covered + nonce + checking.tag()

    def check(self, key: Key, header: bytes | bytearray | memoryview, payload: memoryview) -> None:
        """Raise Forged unless a message is whole, of this key, and by one of this run."""
        checking = self.checking(key, header, payload.nbytes)
        checking.update(payload)
        checking.finish()

    def checking(self, key: Key, header: bytes | bytearray | memoryview, size: int) -> Checking:
        """As `check`, for a payload of `size` bytes that comes in pieces."""
        raw = bytes(memoryview(header)[:HEADER_BYTES])
        begin = COVERED_BYTES + NONCE_BYTES
        return self._begin(key, raw[:COVERED_BYTES], raw[COVERED_BYTES:begin], size, raw[begin:])

    def _begin(
        self, key: Key, covered: bytes, nonce: bytes, size: int, sent: bytes = b""
    ) -> Checking:
        one_call, in_pieces = self._ciphers(key.source)
        return Checking(key, key.pack() + covered, nonce, size, sent, one_call, in_pieces)

    def _ciphers(self, source: int) -> tuple[AESGCM, algorithms.AES]:
        """Of a sender: to make them takes longer than to seal a small message."""
        ciphers = self._senders.get(source)
        if ciphers is None:
            key = self._derived(f"messages from {source}")
            ciphers = self._senders[source] = AESGCM(key), algorithms.AES(key)
        return ciphers

    def _derived(self, purpose: str) -> bytes:
        text = f"dayfly {self._where} {purpose}"
        return hmac.digest(self._token, text.encode(), hashlib.sha256)


@dataclass(slots=True)
class Checking:
    """The AES-GMAC of one message, whose payload comes in pieces. `Authenticator` makes it.

    Attributes:
        key: of the message.
        before: bytes that are authenticated before the payload.
        nonce: of the message.
        size: bytes of the payload.
        sent: the AES-GMAC that came with the message.
        one_call: cipher of a payload that comes in one small piece.
        in_pieces: cipher of another one.
    """

    key: Key
    before: bytes
    nonce: bytes
    size: int
    sent: bytes
    one_call: AESGCM
    in_pieces: algorithms.AES
    _tag: bytes | None = None
    _context: AEADEncryptionContext | None = None

    def update(self, piece: memoryview) -> None:
        """Go on with the next bytes of the payload."""
        if piece.nbytes == self.size <= _SMALL_BYTES:
            self._tag = self.one_call.encrypt(self.nonce, b"", self.before + piece)
            return
        context = self._begun()
        for start in range(0, piece.nbytes, _PIECE_BYTES):
            context.authenticate_additional_data(piece[start : start + _PIECE_BYTES])

    def tag(self) -> bytes:
        """The AES-GMAC, once the payload is complete."""
        if self._tag is None:
            context = self._begun()
            context.finalize()
            self._tag = context.tag
        return self._tag

    def finish(self) -> None:
        """Raise Forged unless the message is what one of this run sent under this key."""
        if not hmac.compare_digest(self.tag(), self.sent):
            raise Forged(
                f"{self.key}: the message is not authentic: it was altered, or put by somebody "
                "who is none of this run and generation, or under another key"
            )

    def _begun(self) -> AEADEncryptionContext:
        if self._context is None:
            self._context = Cipher(self.in_pieces, modes.GCM(self.nonce)).encryptor()
            self._context.authenticate_additional_data(self.before)
        return self._context
