"""Every channel passes the conformance suite, at each of `PLACES`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import ChannelConformance, ChannelPlace, connecting
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from tests.channels.conftest import EVERY
from tests.channels.places import PLACES, FilePlace


class TestEveryChannel(ChannelConformance):
    @pytest.fixture(params=EVERY)
    def place(self, request: pytest.FixtureRequest) -> Iterator[ChannelPlace]:
        with PLACES[request.param]() as place:
            yield place


def test_a_channel_whose_second_put_wins_is_caught(tmp_path: Path) -> None:
    class Careless(FileChannel):
        def put(self, key: Key, header: Header, payload: memoryview) -> bool:
            self.drop([key])
            return super().put(key, header, payload)

    class CarelessPlace(FilePlace):
        def open(self, namespace: Namespace, reader: int) -> Channel:
            return Careless(self.root, namespace)

    with connecting(CarelessPlace(tmp_path)) as connect, pytest.raises(AssertionError):
        ChannelConformance().test_the_second_put_changes_nothing(connect)
