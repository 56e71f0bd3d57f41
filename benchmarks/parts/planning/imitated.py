"""Configurations on local functions that imitate what a plan chooses among, in pairs (`--imitate`).

    two servers against one     the servers' threads are the bottleneck: unshaped workers send them
                                13 MB a step, and little is computed beside
    1f1b against fill-drain     the same cut, micro-batches and memory of functions
    unequal vCPUs               Fargate sells them apart from memory: a quarter and a half of one

As of the other configurations no coefficient is fitted on one of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.parts.planning.configurations import CHOSEN, Channel, Chosen, Way, cut

_SERVERS: Mapping[str, Channel] = {"one": "ps", "two": "ps2"}
_VCPUS: Mapping[str, Way] = {"quarter": "fargate-quarter", "half": "fargate-half"}
_ALL = (
    *(
        Chosen(
            name=f"mlp-3-{number}-server",
            work="mlp",
            channel=channel,
            way="unshaped",
            batch_size=24,
            epochs=1,
            workers=3,
            memory_mib=(512,),
            settings={"collective": "push-pull"},
        )
        for number, channel in _SERVERS.items()
    ),
    *(
        Chosen(
            name=f"gpt-3-stages-{schedule}-442",
            work="gpt",
            batch_size=24,
            epochs=2,
            workers=3,
            memory_mib=(442,),
            settings=cut(2, 4, replicas=1, micro=6, schedule=schedule),
        )
        for schedule in ("fill-drain", "1f1b")
    ),
    *(
        Chosen(
            name=f"cnn-2-{vcpus}-vcpu",
            work="cnn",
            way=way,
            batch_size=24,
            epochs=3,
            workers=2,
            memory_mib=(1024,),
            settings={"collective": "scatter-reduce"},
        )
        for vcpus, way in _VCPUS.items()
    ),
)
#: By name.
IMITATED: Mapping[str, Chosen] = {one.name: one for one in _ALL}
#: All configurations of the bench.
EVERY: Mapping[str, Chosen] = {**CHOSEN, **IMITATED}
