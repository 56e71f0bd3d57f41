"""Every protocol that is registered passes the conformance suite."""

from __future__ import annotations

import pytest

from dayfly.runs.protocols.conformance import ProtocolCase, ProtocolConformance
from dayfly.specs.protocols import PROTOCOLS


@pytest.mark.long
class TestEveryProtocol(ProtocolConformance):
    @pytest.fixture(scope="class", params=list(PROTOCOLS))
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> ProtocolCase:
        described = PROTOCOLS[request.param]
        return ProtocolCase(described=described, settings={"k": 4} if described.averages else {})
