"""How workers take steps together: one file a protocol, each described in `specs.protocols`."""

from __future__ import annotations

import pkgutil

from dayfly.runs.protocols.base import WholeModel
from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.protocols.hap import Hap
from dayfly.runs.protocols.local_sgd import LocalSgdRounds
from dayfly.runs.protocols.outer import OuterRounds
from dayfly.runs.protocols.streaming import StreamingRounds
from dayfly.specs.protocols import ProtocolDescription

_BUILT_IN: dict[str, type[WholeModel]] = {
    "bsp": Bsp,
    "hap": Hap,
    "local-sgd": LocalSgdRounds,
    "outer": OuterRounds,
    "streaming": StreamingRounds,
}


def protocol(described: ProtocolDescription) -> type[WholeModel]:
    """Returns what carries out a protocol."""
    known = _BUILT_IN.get(described.step or described.name)
    if known is not None:
        return known
    found: type[WholeModel] = pkgutil.resolve_name(described.step)
    return found
