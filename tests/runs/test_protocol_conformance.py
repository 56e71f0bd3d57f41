"""Every protocol that is registered passes the conformance suite."""

from __future__ import annotations

import pytest

from dayfly.runs.protocols.conformance import ProtocolCase, ProtocolConformance
from dayfly.specs.protocols import PROTOCOLS
from dayfly.specs.streaming import Streaming


@pytest.mark.long
class TestEveryProtocol(ProtocolConformance):
    @pytest.fixture(
        scope="class", params=[*PROTOCOLS, "local-sgd nesterov", "local-sgd nesterov streamed"]
    )
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> ProtocolCase:
        name, *more = request.param.split()
        outer = more[0] if more else None
        if more[1:]:
            return ProtocolCase(
                described=PROTOCOLS[name].by(outer, Streaming(fragments=2, overlap=2)),
                settings={"k": 4, "outer": outer, "fragments": 2, "overlap": 2},
                points=("frag-0-put-part", "frag-1-put-sum", "frag-1-get"),
            )
        described = PROTOCOLS[name].by(outer)
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
