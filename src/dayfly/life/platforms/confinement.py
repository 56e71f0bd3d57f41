"""What holds a function of the local platform to its limits of memory and CPU time.

Memory by cgroup, or else by RLIMIT_DATA. CPU time by cgroup, or not at all:
there is no other way to hold a process to a share of a core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one attempt is held by. None: not limited, or not by cgroup.

    Args:
        memory, cpu: may be the same cgroup.
        own_bytes: memory that it may use beside its base.
    """

    memory: Cgroup | None = None
    cpu: Cgroup | None = None
    own_bytes: int | None = None

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
        wanted: dict[Resource, float | None] = {
            "memory": own_bytes,
            "cpu": invocation.spec.cpu_cores,
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
        return Confinement(held.get("memory"), held.get("cpu"), own_bytes)

    def _made(self, controller: Controller, name: str) -> Cgroup:
        cgroup = Cgroup(controller, controller.parent / name)
        self._session.record_cgroup(cgroup.path)
        cgroup.path.mkdir()
        return cgroup


def _place(controller: Controller) -> str:
    return f"cgroup (version {controller.version}, under {controller.parent})"
