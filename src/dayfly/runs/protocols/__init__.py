"""How workers take steps together: one file a protocol. What `--sync` takes is in `PROTOCOLS`."""

from __future__ import annotations

from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.protocols.local_sgd import LocalSgdRounds
from dayfly.runs.protocols.whole_model import WholeModel

#: Protocols by the name that `--sync` takes.
PROTOCOLS: dict[str, type[WholeModel]] = {"bsp": Bsp, "local-sgd": LocalSgdRounds}
