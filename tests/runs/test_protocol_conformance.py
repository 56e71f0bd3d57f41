"""Every protocol that is registered passes the conformance suite."""

from __future__ import annotations

import pytest

from dayfly.runs.protocols.conformance import ProtocolCase, ProtocolConformance
from dayfly.specs.protocols import PROTOCOLS


@pytest.mark.long
class TestEveryProtocol(ProtocolConformance):
    @pytest.fixture(scope="class", params=[*PROTOCOLS, "local-sgd nesterov"])
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> ProtocolCase:
        name, _, outer = request.param.partition(" ")
        described = PROTOCOLS[name].by(outer or None)
        if described.staleness:
            return ProtocolCase(
                described=described,
                settings={"aggregators": 1, "collective": "k-reduce"},
                points=("grad-fetch", "grad-put-part", "grad-put-sum", "grad-get"),
            )
        settings: dict[str, object] = {"k": 4} if described.averages else {}
        return ProtocolCase(
            described=described, settings=settings | ({"outer": outer} if outer else {})
        )
