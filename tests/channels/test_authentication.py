"""What others can write to: a message that is not the run's own, under its own key, is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from dayfly.errors import Forged, WireError
from dayfly.wire.authentication import Authenticator, new_token
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, Key
from dayfly.wire.message import Header, as_bytes, checksum
from tests.channels.conftest import Connect
from tests.channels.names import TOKEN
from tests.channels.places import NAMESPACE, SOON_S, Place, put, tensor

KEY = Key(7, "grad-part", 1, 0)
SENT = tensor((3000,))
HEADER = Header(KEY.operation, SENT.dtype, tuple(SENT.shape))
RUN = NAMESPACE.run, NAMESPACE.generation
STOP = Key(FOREVER, "stop", COORDINATOR, EVERYONE)


@pytest.fixture
def shared(connect: Connect) -> Connect:
    """The places that others can write to."""
    if not connect(0).abilities.authenticated:
        pytest.skip("its messages are in memory that is its user's alone")
    return connect


def sealed(key: Key, by: Authenticator, value: torch.Tensor = SENT) -> bytes:
    """A message that somebody sealed under a key."""
    header = Header(KEY.operation, value.dtype, tuple(value.shape))
    return header.seal(as_bytes(value), key, by) + bytes(as_bytes(value))


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


def forgeries(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """What a stranger may put in place of a message that he has seen."""
    own = Authenticator(TOKEN, *RUN)
    for at in (0, 4, 5, 6, 7, 8, 48, 97, 100, 111, 112, 127, 128, 2000, len(raw) - 1):
        yield f"bit of byte {at}", flipped(raw, at)
    yield "another payload", raw[:HEADER_BYTES] + bytes(len(raw) - HEADER_BYTES)
    yield "another token", sealed(KEY, Authenticator(new_token(), *RUN))
    yield "another generation", sealed(KEY, Authenticator(TOKEN, RUN[0], RUN[1] + 1))
    yield "another run", sealed(KEY, Authenticator(TOKEN, "other", RUN[1]))
    for field in ({"step": 8}, {"source": 2}, {"destination": 3}, {"operation": "grad-sum"}):
        other = Key(**{**{name: getattr(KEY, name) for name in Key.__slots__}, **field})
        yield f"another key: {field}", sealed(other, own)
    first, seed = HEADER.summed(SENT.nbytes)
    payload = as_bytes(SENT)
    yield "a checksum", first + checksum(payload, seed).to_bytes(8, "little") + bytes(payload)


def read_all(reader: Channel) -> Iterator[Callable[[], object]]:
    yield lambda: reader.get(KEY, torch.zeros_like(SENT), SOON_S)
    yield lambda: reader.fetch(KEY, HEADER, SOON_S)


def test_a_message_that_is_not_authentic_is_refused_and_named(
    shared: Connect, place: Place
) -> None:
    writer, reader = shared(1), shared(0)
    assert put(writer, KEY, SENT)
    raw = place.raw(NAMESPACE, KEY)
    reader.get(KEY, torch.zeros_like(SENT), SOON_S)  # as it is
    writer.drop([KEY])
    assert writer.stored([KEY]) == set()
    refused_whole = 0
    for what, forged in forgeries(raw):
        place.plant(NAMESPACE, KEY, forged)
        for read in read_all(reader):
            with pytest.raises(WireError, match=rf"^{KEY}: ") as refused:
                read()
            refused_whole += isinstance(refused.value, Forged)
            assert isinstance(refused.value, Forged) or "expected" in str(refused.value), what
        writer.drop([KEY])
        assert writer.stored([KEY]) == set()  # now it is gone, also for others
    assert refused_whole > 20


def test_both_of_two_attempts_are_authentic_and_the_first_wins(
    shared: Connect, place: Place
) -> None:
    first, second = SENT, SENT + 1
    writer = shared(1)
    assert put(writer, KEY, first)
    assert not put(shared(1), KEY, second)
    got = torch.zeros_like(SENT)
    shared(0).get(KEY, got, SOON_S)
    assert torch.equal(got, first)
    writer.drop([KEY])
    assert writer.stored([KEY]) == set()  # now it is gone, also for others
    assert put(shared(1), KEY, second)
    shared(0).get(KEY, got, SOON_S)
    assert torch.equal(got, second)


def test_each_seal_has_a_nonce_of_its_own(shared: Connect, place: Place) -> None:
    raws, writer = [], shared(1)
    for _ in range(2):
        put(writer, KEY, SENT)
        raws.append(place.raw(NAMESPACE, KEY))
        writer.drop([KEY])
        assert writer.stored([KEY]) == set()  # of another's dropping it would know later
    nonces = {raw[100:112] for raw in raws}
    tags = {raw[112:128] for raw in raws}
    assert len(nonces) == len(tags) == 2
    assert raws[0][:100] == raws[1][:100]


def test_a_forged_note_says_nothing_and_a_true_one_takes_its_place(
    shared: Connect, place: Place
) -> None:
    """A stranger who writes a wish to stop, or repeats another run's, stops nothing."""
    worker, coordinator = shared(0), shared(COORDINATOR)
    assert not worker.told(STOP)
    nothing = Header(STOP.operation, torch.uint8, (0,))
    stranger = Authenticator(new_token(), *RUN)
    for forged in (b"", nothing.seal(memoryview(b""), STOP, stranger)):
        place.plant(NAMESPACE, STOP, forged)
        assert worker.stored([STOP]) == {STOP}
        assert not worker.told(STOP)
        coordinator.drop([STOP])
        assert coordinator.stored([STOP]) == set()
    place.plant(NAMESPACE, STOP, nothing.seal(memoryview(b""), STOP, stranger))
    coordinator.tell(STOP)
    assert worker.told(STOP)
    coordinator.tell(STOP)  # again
    assert worker.told(STOP)
