"""How workers take steps together: one file a protocol, each described in `specs.protocols`."""

from __future__ import annotations

import pkgutil

from dayfly.runs.protocols.base import WholeModel
from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.protocols.local_sgd import LocalSgdRounds
from dayfly.specs.protocols import PROTOCOLS

_BUILT_IN: dict[str, type[WholeModel]] = {"bsp": Bsp, "local-sgd": LocalSgdRounds}


def protocol(name: str) -> type[WholeModel]:
    """What carries out the protocol of this name, which is a known one."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    found: type[WholeModel] = pkgutil.resolve_name(PROTOCOLS[name].step)
    return found
