"""What holds a function of the local platform to its limits of memory and CPU time.

Memory by cgroup, or else by RLIMIT_DATA. CPU time by cgroup, or not at all:
there is no other way to hold a process to a share of a core.

The kernel hands a cgroup its time in slices of 5 ms, each to one CPU. A quarter of a core is one
slice in a period of 20 ms: where the function computes on one CPU and sends on another, one of the
two waits for the next period, by chance. So a function of less than a core is bound to one CPU,
where its threads share each slice, if some CPU has room for its share. The cgroup's name says which
one, so that functions of all runs on this machine are counted, and nobody has to take them off.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dayfly.cpus import cpus_with_room, thousandths
from dayfly.errors import RequestError
from dayfly.life.platforms.base import Invocation
from dayfly.life.platforms.cgroups import Cgroup, Controller, Resource, find_controllers
from dayfly.life.sessions import Session
from dayfly.specs.functions import FunctionSpec

Enforcer = Literal["auto", "cgroup", "rlimit"]
#: What helps a user who may make no cgroups.
WAY_OUT = (
    "run as root, or, with systemd and cgroups of version 2, as "
    "systemd-run --user --scope -p Delegate=yes dayfly ..."
)
#: How the name of such a function's cgroup ends: its CPU, and thousandths of it that it may have.
_BOUND = re.compile(r"dayfly-.+-cpu(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one attempt is held by. None: not limited, or not by cgroup.

    Args:
        memory, cpu: may be the same cgroup.
        own_bytes: memory that it may use beside its base.
        on_cpu: the number of the CPU that all its threads run on.
    """

    memory: Cgroup | None = None
    cpu: Cgroup | None = None
    own_bytes: int | None = None
    on_cpu: int | None = None

    @property
    def cgroups(self) -> tuple[Cgroup, ...]:
        """Those that there are, each once."""
        found = [one for one in (self.memory, self.cpu) if one is not None]
        return tuple(dict.fromkeys(found))

    def remove(self) -> None:
        """Kill what is in the cgroups and remove them; one that stays busy is the session's."""
        for cgroup in self.cgroups:
            cgroup.remove()


class Confiner:
    """Makes the confinements of one platform's functions.

    Raises RequestError if `enforcer` is cgroup and no memory cgroup can be made here.
    """

    def __init__(self, session: Session, enforcer: Enforcer) -> None:
        if enforcer not in ("auto", "cgroup", "rlimit"):
            raise RequestError(f"enforcer {enforcer!r}: must be auto, cgroup or rlimit")
        self._session = session
        probe_name = f"dayfly-{session.id}-probe"
        found = dict(find_controllers(probe_name, session.record_cgroup))
        if enforcer == "rlimit":
            found.pop("memory", None)
        self._controllers: Mapping[Resource, Controller] = found
        if enforcer == "cgroup" and "memory" not in found:
            raise RequestError(
                "memory cannot be limited by cgroup: this user may not make memory cgroups here; "
                f"use enforcer auto or rlimit, or {WAY_OUT}"
            )

    @property
    def memory_by_cgroup(self) -> bool:
        """Whether the kernel kills at the memory limit; otherwise allocations fail."""
        return "memory" in self._controllers

    @property
    def enforcement(self) -> str:
        """In words."""
        memory, cpu = self._controllers.get("memory"), self._controllers.get("cpu")
        said = "memory by RLIMIT_DATA: an allocation beyond the limit fails in the function"
        if memory is not None:
            said = f"memory by {_place(memory)}: the kernel kills the function at its limit"
        return f"{said}; CPU time {'not at all' if cpu is None else f'by {_place(cpu)}'}"

    def check(self, spec: FunctionSpec) -> None:
        """Raise RequestError for a limit that nothing can hold a function to here."""
        if spec.cpu_cores is not None and "cpu" not in self._controllers:
            raise RequestError(
                f"a share of {spec.cpu_cores:g} CPUs cannot be enforced: this user may not make "
                f"cpu cgroups here; {WAY_OUT}"
            )

    def make(self, invocation: Invocation, own_bytes: int | None) -> Confinement:
        """For one attempt, which may use `own_bytes` beside its base; each cgroup recorded first.

        Raises RequestError as `check` does.
        """
        self.check(invocation.spec)
        name = f"dayfly-{self._session.id}-{invocation.function}-{invocation.attempt}"
        cores = invocation.spec.cpu_cores
        on_cpu = None
        if cores is not None and cores < 1:
            names = os.listdir(self._controllers["cpu"].parent)
            cpus = cpus_with_room(cores, taken_of_cpus(names, os.sched_getaffinity(0)))
            if cpus:
                on_cpu = random.choice(cpus)
                name += f"-cpu{on_cpu}-{thousandths(cores)}"
        wanted: dict[Resource, float | None] = {
            "memory": own_bytes,
            "cpu": cores,
        }
        made: dict[Controller, Cgroup] = {}
        held: dict[Resource, Cgroup] = {}
        try:
            for resource, amount in wanted.items():
                controller = self._controllers.get(resource)
                if amount is None or controller is None:
                    continue
                if controller not in made:
                    made[controller] = self._made(controller, name)
                held[resource] = made[controller]
                if resource == "memory":
                    held[resource].limit_memory(int(amount))
                else:
                    held[resource].limit_cpu(amount)
        except BaseException:
            for cgroup in made.values():
                cgroup.remove()
            raise
        return Confinement(held.get("memory"), held.get("cpu"), own_bytes, on_cpu)

    def _made(self, controller: Controller, name: str) -> Cgroup:
        cgroup = Cgroup(controller, controller.parent / name)
        self._session.record_cgroup(cgroup.path)
        cgroup.path.mkdir()
        return cgroup


def taken_of_cpus(names: Iterable[str], cpus: Collection[int]) -> dict[int, int]:
    """Returns thousandths of each CPU that functions bound to it may use, by its number.

    Args:
        names: of all functions' cgroups on this machine.
        cpus: numbers of those that there are for functions.
    """
    taken = dict.fromkeys(cpus, 0)
    for bound in filter(None, map(_BOUND.fullmatch, names)):
        cpu, share = map(int, bound.groups())
        if cpu in taken:
            taken[cpu] += share
    return taken


def _place(controller: Controller) -> str:
    return f"cgroup (version {controller.version}, under {controller.parent})"
