"""Training methods: a protocol with those of its settings that change what a sample teaches.

    bsp    bsp+int8    hap:2    local-sgd:8    local-sgd:epoch    nesterov:20+topk:0.01

    NAME        the protocol, as `--sync`; or an outer optimizer, which stands for local-sgd with it
    :N          steps between two averages, or epoch; of a protocol with staleness: aggregators
    +SETTING    a compression, an outer optimizer, outer-lr=, outer-momentum=, fragments=, overlap=

With `@` and a number behind it, it is the method at that global batch size: `nesterov:20@512`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Self

from dayfly.errors import RequestError
from dayfly.specs.compression import compression
from dayfly.specs.outer import AVERAGE, MOMENTUM, NESTEROV, OF_JOB, Outer
from dayfly.specs.outer import refuses as refuses_outer
from dayfly.specs.protocols import PROTOCOLS, ProtocolDescription
from dayfly.specs.streaming import Streaming
from dayfly.specs.streaming import refuses as refuses_streaming

#: Settings that are numbers, as names have them.
_NUMBERS: Mapping[str, Callable[[str], float]] = {
    "outer-lr": float,
    "outer-momentum": float,
    "fragments": int,
    "overlap": int,
}
#: Steps of a round that are an epoch's.
EPOCH = "epoch"
_FORM = "give a protocol such as bsp, hap:1, local-sgd:8 or nesterov:20, with +int8 or another "
_FORM += "--compress behind it if need be"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A training method. Raises RequestError for settings that do not go together.

    Args:
        sync: the protocol, as `--sync`.
        k: steps of a round, or `epoch`; None: the protocol sums every step.
        outer: the outer optimizer, as `--outer`; None: none.
        outer_lr: its learning rate; None: the usual one.
        outer_momentum: its momentum; None: the usual one.
        aggregators: workers that sum, of a protocol with staleness; None: of one without, or a
            planner chooses how many.
        compress: as `--compress`.
        fragments: in which outer gradients are streamed, as `--fragments`; None: they are not.
        overlap: inner steps beside which a fragment travels; None: the usual ones, if they are.
    """

    sync: str = "bsp"
    k: int | str | None = None
    outer: str | None = None
    outer_lr: float | None = None
    outer_momentum: float | None = None
    aggregators: int | None = None
    compress: str = "none"
    fragments: int | None = None
    overlap: int | None = None

    def __post_init__(self) -> None:
        usual = Outer()
        # Two that teach alike are equal.
        for name, value in (
            ("outer", AVERAGE),
            ("outer_lr", usual.lr),
            ("outer_momentum", usual.momentum),
        ):
            if getattr(self, name) == value:
                object.__setattr__(self, name, None)
        PROTOCOLS.check(self.sync, "--sync")
        compression(self.compress)
        refused = (
            refuses_outer(self.outer, self.outer_lr, self.outer_momentum)
            or refuses_streaming(self.fragments, self.overlap, self.k)
            or PROTOCOLS[self.sync].refuses_outer(self.outer)
            or self._refuses_streams()
            or self.protocol.refuses(k=self.k, compress=self.compress, cut=False)
        )
        if refused is not None:
            raise RequestError(refused)

    def _refuses_streams(self) -> str | None:
        """Why nothing can be streamed; None: it can be, or nothing is to be."""
        if self.streaming is None or self.outer is not None:
            return None
        return (
            "--fragments and --overlap stream outer gradients: give an outer optimizer, as in "
            "nesterov:20+fragments=4, or leave them out"
        )

    @classmethod
    def parse(cls, text: str, *, planned: bool = False) -> Self:
        """Reads the name of a method, such as `nesterov:20+int8`.

        Args:
            text: as above, without a batch size.
            planned: a planner may choose the number of aggregators, which the name leaves out.

        Raises:
            RequestError: it names no method, or its settings do not go together.
        """
        head, *more = text.split("+")
        name, colon, number = head.partition(":")
        found: dict[str, Any] = {"sync": name}
        if name in (NESTEROV, MOMENTUM):
            found = {"sync": "local-sgd", "outer": name}
        elif name not in PROTOCOLS:
            raise RequestError(f"there is no training method {text!r}: {_FORM}")
        if colon:
            if not (number == EPOCH or (number.isdecimal() and int(number) >= 1)):
                raise RequestError(f"{text!r}: {number!r} is no number from 1: {_FORM}")
            value = number if number == EPOCH else int(number)
            found["aggregators" if PROTOCOLS[found["sync"]].staleness else "k"] = value
        for one in more:
            name, equals, value = one.partition("=")
            setting: dict[str, Any] = {"compress": one}
            if equals and name in _NUMBERS:
                setting = {name.replace("-", "_"): _number(text, value, _NUMBERS[name])}
            elif one in (AVERAGE, NESTEROV, MOMENTUM, OF_JOB):
                setting = {"outer": one}
            for twice in setting.keys() & found.keys():
                flag = twice.replace("_", "-")
                raise RequestError(f"{text!r} says --{flag} twice: leave out one of them")
            found |= setting
        try:
            method = cls(**found)
        except RequestError as refusal:
            raise RequestError(f"{text!r}: {refusal}") from None
        if method.leaves_open and not planned:
            raise RequestError(
                f"{text!r}: {method.sync} needs the number of workers that sum: give "
                f"{method.sync}:1, for example"
            )
        return method

    @classmethod
    def of(cls, settings: Any) -> Self:
        """Returns the method of a run's settings; a lone worker without an outer optimizer has bsp.

        Args:
            settings: `dayfly.runs.settings.Settings`.
        """
        protocol, alone = PROTOCOLS[settings.sync], settings.workers == 1
        if alone and settings.outer in (None, AVERAGE):
            return cls()
        return cls(
            sync=settings.sync,
            k=settings.k,
            outer=settings.outer,
            outer_lr=settings.outer_lr,
            outer_momentum=settings.outer_momentum,
            aggregators=settings.aggregators if protocol.staleness else None,
            compress="none" if alone else settings.compress,
            fragments=settings.fragments,
            overlap=settings.overlap,
        )

    @property
    def protocol(self) -> ProtocolDescription:
        """Its description."""
        return PROTOCOLS[self.sync].by(self.outer, self.streaming)

    @property
    def streaming(self) -> Streaming | None:
        """How outer gradients are streamed; None: they are exchanged at a round's end."""
        return Streaming.of(self.fragments, self.overlap)

    @property
    def streams(self) -> bool:
        """Whether it can be streamed: it has an outer optimizer whose protocol can be."""
        has = PROTOCOLS[self.sync].by(self.outer)
        return self.outer is not None and has.streamed is not None

    @property
    def round_steps(self) -> int | None:
        """Steps of a round; None: an epoch's."""
        return self.protocol.steps(None if self.k == EPOCH else self.k)  # type: ignore[arg-type]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of a run that are not the usual ones, by their names in `Settings`."""
        usual = Method()
        return {
            one.name: value
            for one in fields(self)
            if (value := getattr(self, one.name)) != getattr(usual, one.name)
        }

    @property
    def leaves_open(self) -> bool:
        """Whether a planner chooses the number of aggregators."""
        return self.protocol.staleness > 0 and self.aggregators is None

    def allows(self, other: Method) -> bool:
        """Whether another is this one, or has what this one leaves open.

        Args:
            other: a method.
        """
        return other == (replace(self, aggregators=other.aggregators) if self.leaves_open else self)

    @property
    def is_plain(self) -> bool:
        """Whether all workers take the exact sum of every step, so that all learn as one would."""
        return not (self.protocol.averages or self.protocol.staleness or self.compress != "none")

    def __str__(self) -> str:
        named = self.outer in (NESTEROV, MOMENTUM) and self.sync == "local-sgd"
        said = str(self.outer) if named else self.sync
        number = self.k if self.aggregators is None else self.aggregators
        said += "" if number is None else f":{number}"
        if self.outer is not None and not named:
            said += f"+{self.outer}"
        for name in _NUMBERS:
            if (value := getattr(self, name.replace("-", "_"))) is not None:
                said += f"+{name}={value:.12g}"
        return said + ("" if self.compress == "none" else f"+{self.compress}")


#: What others are compared with.
BSP = Method()


def method_and_batch(text: str, usual: Method = BSP) -> tuple[Method, int | None]:
    """Returns a method and its global batch size, of a name such as `nesterov:20@512` or `@512`.

    Args:
        text: the name.
        usual: the method if there is a batch size alone.

    Raises:
        RequestError: as of `Method.parse`, or the batch size is no number from 1.
    """
    name, at, batch = text.partition("@")
    method = Method.parse(name) if name or not at else usual
    if not at:
        return method, None
    if not (batch.isdecimal() and int(batch) >= 1):
        raise RequestError(f"{text!r}: {batch!r} is no batch size: give samples from 1")
    return method, int(batch)


#: Settings of which several values may be tried with each method.
AXES = ("fragments", "overlap", "compress")


def crossed(methods: Sequence[Method], axes: Mapping[str, Sequence[Any]]) -> tuple[Method, ...]:
    """Returns each method with all combinations of values that it can have, each method once.

        bsp, nesterov:15    fragments 2, 4, overlap 5    bsp, nesterov:15+fragments=2+overlap=5,
                                                         nesterov:15+fragments=4+overlap=5

    A method keeps what its name says, and is as it is where it cannot be streamed.

    Args:
        methods: to begin with.
        axes: values of each of `AXES`; none, or an axis that is left out: as the methods have it.
            Fragments of None are one exchange at the round's end, which nothing overlaps.

    Raises:
        RequestError: a value that none of the methods can have, or a method that can have no
            combination; with the reason.
    """
    asked = {name: values for name in AXES if (values := tuple(axes.get(name, ())))}
    found: dict[Method, None] = {}
    had: set[tuple[str, Any]] = set()
    refused: dict[tuple[str, Any], str] = {}
    for method in methods:
        own, made = [name for name in asked if _open(method, name)], False
        had |= {(name, getattr(method, name)) for name in asked if name not in own}
        for values in product(*(asked[name] for name in own)):
            settings = dict(zip(own, values, strict=True))
            if "overlap" in settings and settings.get("fragments", 1) is None:
                settings["overlap"] = None
            try:
                found[replace(method, **settings)] = None
            except RequestError as refusal:
                why = str(refusal)
                refused |= dict.fromkeys(settings.items(), why)
                continue
            had.update(settings.items())
            made = True
        if not made:
            raise RequestError(f"{method}: {why}")
    for value in [(name, one) for name, values in asked.items() for one in values]:
        if value not in had:
            why = refused.get(value, "outer gradients are streamed: add nesterov:20, for example")
            raise RequestError(f"--{value[0]} {value[1]} is of no method of --sync: {why}")
    return tuple(found)


def _open(method: Method, axis: str) -> bool:
    """Whether a method may have another value than its own, which nobody gave."""
    if axis == "compress":
        return method.compress == "none"
    return method.streams and getattr(method, axis) is None


def _number(text: str, value: str, kind: Callable[[str], float]) -> float:
    try:
        return kind(value)
    except ValueError:
        raise RequestError(f"{text!r}: {value!r} is no such number: {_FORM}") from None
