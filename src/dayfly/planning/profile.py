"""What is known of a job on a platform: what a plan is made of, and its file `profile.json`.

    layers        bytes, which are the same everywhere
    sizes         seconds, for each memory size of a function
    fit           FasDL's a, b, m: the time of a step by samples and memory (eq. 4)

A profile is measured (`dayfly profile`), written by hand, or made from a row of the catalogue and
FLOPs. Times are of a function that computes and transfers nothing meanwhile, unless said otherwise.
Sizes are MiB as the platforms count them. The file is checked key by key:

    {"version": 1, "job": "digits", "platform": "local", "channel": "...", "samples": 1438, ...,
     "layers": [{"name": "1 Linear", "parameters": 33280, "trained": 33280, ...}, ...],
     "sizes": [{"memory_mib": 1024, "forward": [{"fixed": 1e-4, "each": 2e-6}, ...],
                "step_s": {"value": 3e-4, "low": 3e-4, "high": 4e-4, "count": 40}, ...}, ...],
     "fit": {"a": ..., "b": ..., "m": ..., "error": ...} | null, ...}

A figure is a number, if somebody says it, or an object with its spread, if it was measured. What is
not limited, infinite or not known is null. Keys that have a usual value may be left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Self

from dayfly import dataclass_json, json_files
from dayfly.dataclass_json import ABOVE_0, Bound, Count, Positive, Range, Real
from dayfly.errors import RequestError
from dayfly.planning.affine import NOTHING as NOTHING
from dayfly.planning.affine import Affine as Affine
from dayfly.planning.conditions import Conditions
from dayfly.planning.decline import check_decline
from dayfly.planning.function_kinds import FunctionKind, ProfiledGpu, memory_label
from dayfly.wire.shaping import Rates
from dayfly.wire.streams import HostLink, ServingThread


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and how far it can be trusted.

    value: the median. low, high: quartiles of what was measured. count: of measurements; 0: it was
    not measured but written down.
    """

    value: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of measurements. Raises ValueError if there is none."""
        ordered = sorted(values)
        if not ordered:
            raise ValueError("a figure of no measurements")
        quarter = (len(ordered) - 1) // 4
        return cls(median(ordered), ordered[quarter], ordered[-1 - quarter], len(ordered))

    @classmethod
    def given(cls, value: float) -> Self:
        """One that somebody says."""
        return cls(value, value, value, 0)

    #: In files, a plain number stands for one that somebody says.
    from_number = given

    def check_read(self) -> None:
        """Raises ValueError for a value outside its quartiles."""
        if not self.low <= self.value <= self.high:
            raise ValueError("give low <= value <= high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One direction of a function's way to the store.

    A message of s bytes takes `latency_s + s / throughput(s)`, where the throughput saturates with
    size: p (1 - exp(-t s)) (FasDL eq. 2), with p = peak_bytes_per_s and t = saturation_per_byte;
    infinite t: p for any size. cpu_s, cpu_s_per_byte: CPU time that a message takes of its
    function, which it has no more for computing.
    """

    latency_s: Figure
    peak_bytes_per_s: Annotated[Figure, ABOVE_0]
    saturation_per_byte: Bound = math.inf
    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0

    def throughput(self, nbytes: float) -> float:
        """Bytes a second of a message of this size, its latency left out (FasDL eq. 2)."""
        rate = -math.expm1(-self.saturation_per_byte * nbytes) if nbytes else 1.0
        return self.peak_bytes_per_s.value * rate

    def occupied_s(self, nbytes: float) -> float:
        """How long a message of this size keeps the line busy."""
        return nbytes / self.throughput(nbytes) if nbytes else 0.0

    def message_s(self, nbytes: float) -> float:
        """How long a message of this size takes alone."""
        return self.latency_s.value + self.occupied_s(nbytes)


VERSION = 1
#: Computing beside others takes what it takes alone.
_ALONE = Figure.given(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """One layer of the model; of a model that is no list of layers, all of it.

    parameters: bytes of all parameters. trained: of those that get a gradient. buffers: such as
    BatchNorm's statistics. Of each sample: activations: kept for the backward pass. output: passed
    to the next layer. gradient: passed back to the layer before.

    tensors: elements of each trained parameter, in the model's order; none given: all of `trained`
    is one parameter of float32. moving: elements of all buffers; None: they are float32.
    """

    name: str
    parameters: int
    trained: int
    buffers: int = 0
    activations: float = 0.0
    output: float = 0.0
    gradient: float = 0.0
    tensors: tuple[Count, ...] = ()
    moving: int | None = None

    def check_read(self) -> None:
        """Raises ValueError if more is trained than there is."""
        if self.trained > self.parameters:
            raise ValueError(
                f"trains {self.trained} bytes of {self.parameters}: give at most as many"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What passes of so many samples took, in wall seconds: what a SizeProfile's lines go through.

    forward, backward: of each layer. data: to read the samples. held_mib: the most memory that such
    a pass of the whole model takes while it lasts; None: nobody measured it.
    """

    samples: Count
    forward: tuple[Figure, ...]
    backward: tuple[Figure, ...]
    data: Figure
    held_mib: float | None = None

    @property
    def compute_s(self) -> float:
        """Of all layers, forward and backward."""
        return sum(figure.value for figure in (*self.forward, *self.backward))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeProfile:
    """Functions of one memory size.

    memory_mib: None: not limited. cpu_cores: seconds of CPU time a second; None: not limited.
    gpu_share: of the profile's GPU, on which passes are; None: they are on the CPU.
    cpu_period_s: how often a function gets its share of the CPU anew, and how much it may use at
    once follows from that; 0: evenly. forward, backward: of each layer, wall seconds of so many
    samples. data: to read samples and put them together. apply: the optimizer's step, by bytes of
    trained parameters. step_s: what a step takes beside all that. reduce_s_per_byte: to add a
    contribution. up, down: its way to the store. sum_cpu_s: CPU seconds that an all-reduce takes by
    itself, whatever it moves. pass_cpu_s: those of a pass of a stage beside its layers.
    stage_message_cpu_s: those of a message between stages beside `up.cpu_s` or `down.cpu_s`; None:
    nobody measured it. beta: how much longer computing takes while transfers are under way
    (FuncPipe's). crowd: how many times the CPU time passes take while neighbours compute on
    crowd_cores of the machine; 0: nobody measured that. jitter: the standard deviation of a pass,
    relative to its time; 0: likewise. init_s: from the request to the handler. start_s: from there
    to the first step, reading job, data and checkpoint. end_s: from the last step to the end,
    writing the last checkpoint. Both are of one worker, with the whole model. base_mib: memory of a
    worker before it has a model. rates: to which its way to the store is limited, if it is. passes:
    what was measured, with its spread. conditions: of the machine meanwhile; None: nobody watched.
    """

    memory_mib: Count | None
    cpu_cores: Positive | None
    cpu_period_s: float = 0.0
    gpu_share: Annotated[float, Range(0, 1)] | None = None
    forward: tuple[Affine, ...]
    backward: tuple[Affine, ...]
    data: Affine
    apply: Affine
    step_s: Figure
    reduce_s_per_byte: float
    up: Transfer
    down: Transfer
    sum_cpu_s: float = 0.0
    pass_cpu_s: float = 0.0
    stage_message_cpu_s: float | None = None
    beta: Annotated[Figure, ABOVE_0]
    crowd: Annotated[Figure, Range(1)] = _ALONE
    crowd_cores: float = 0.0
    jitter: float = 0.0
    init_s: Figure
    start_s: Figure
    end_s: Figure
    base_mib: Figure
    rates: Rates | None = None
    passes: tuple[Pass, ...] = ()
    conditions: Conditions | None = None

    @property
    def speed(self) -> float:
        """CPU seconds a second that one thread gets."""
        return 1.0 if self.cpu_cores is None else min(1.0, self.cpu_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """FasDL eq. 4: seconds of a step of B samples with M MiB: a (B + b) / (M + m).

    error: mean relative error at the measured points.
    """

    a: Positive
    b: Real
    m: Real
    error: float

    def step_s(self, samples: float, memory_mib: float) -> float:
        """Eq. 4."""
        return self.a * (samples + self.b) / (memory_mib + self.m)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A job on a platform, over a store.

    job: its name. platform: where; imitate: whose limits and prices, if others'. channel: URL
    without secrets, or the name of a store of the catalogue. listed: whether the model is a list of
    layers, and can be cut. samples, validation_samples: of the data. sample_bytes: of one.
    state_per_trained_byte: bytes of the optimizer's state for each that it trains. sizes: by
    memory, rising. how: "measured", "catalogue" or "by hand". took_s: how long measuring took.
    machine: on what. store: what messages take of the one thread of their store; None: it has none,
    or nobody measured it. store_bytes_per_s: what the store carries each way for all functions
    together; None: any. host: what functions on one machine share, if anything. decline:
    (functions, part of a function's bandwidth that is left while so many run), linear between
    (`planning.decline`). measures: numbers that a validation of one block sums, four and one a
    metric of the job.

    batch_size (None: nobody said), epochs, accumulate, validate_every: the job's. clips: whether it
    clips gradients. batch_per_worker: samples of a step of each worker, if the batch follows their
    number; batch_size is one worker's then. A prediction is of these unless others are asked for.
    """

    job: str
    platform: str
    imitate: str | None
    channel: str
    listed: bool
    samples: Count
    validation_samples: int
    sample_bytes: float
    state_per_trained_byte: float
    layers: tuple[LayerBytes, ...]
    sizes: tuple[SizeProfile, ...]
    fit: Fit | None = None
    how: str = "by hand"
    took_s: float = 0.0
    machine: Mapping[str, str | bool | float | None] | None = None
    store: ServingThread | None = None
    store_bytes_per_s: float | None = None
    host: HostLink | None = None
    decline: tuple[tuple[float, float], ...] = ()
    measures: int = 4
    gpu: ProfiledGpu | None = None
    flops: tuple[Affine, ...] = ()
    batch_size: Count | None = None
    epochs: Count = 1
    accumulate: Count = 1
    validate_every: Annotated[int, Range(0)] = 1
    clips: bool = False
    batch_per_worker: Count | None = None

    @property
    def shared_cores(self) -> float:
        """Cores of the machine that all functions of a run are on; infinite: each has its own, as
        far as anybody knows."""
        if self.platform != "local" or self.machine is None:
            return math.inf
        return float(self.machine.get("cores") or math.inf)

    def check_read(self) -> None:
        """Raises ValueError for parts that do not fit each other."""
        for name in ("layers", "sizes"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: give one at least")
        count = len(self.layers)
        if not self.listed and count > 1:
            what = "a model that is no list of layers (listed: false)"
            raise ValueError(f"{what} has one entry in layers, not {count}")
        for number, size in enumerate(self.sizes):
            for name in ("forward", "backward"):
                if len(times := getattr(size, name)) != count:
                    raise ValueError(
                        f"sizes[{number}].{name} has {len(times)} entries, and there are {count} "
                        "layers: give one a layer"
                    )
        if len(self.flops) not in (0, count):
            raise ValueError(f"flops has {len(self.flops)} entries for {count} layers: one a layer")
        order = [
            (one.memory_mib or math.inf, one.cpu_cores or 0.0, one.gpu_share or 0.0)
            for one in self.sizes
        ]
        if any(one >= other for one, other in pairwise(order)):
            raise ValueError(
                "sizes must rise by memory_mib, null last, of one memory by cpu_cores, then "
                "gpu_share, each once"
            )
        if any((one.gpu_share is None) != (self.gpu is None) for one in self.sizes):
            raise ValueError("give gpu and each size a gpu_share, or neither")
        check_decline(self.decline, "decline: ")
        cores = (self.machine or {}).get("cores", 1.0)
        if not isinstance(cores, float) or not cores:
            raise ValueError(f"machine.cores is {cores!r}: give a number above 0")

    def kind_of(self, size: SizeProfile) -> FunctionKind:
        """Returns what a size's functions have that others of its memory may not."""
        alike = {one.cpu_cores for one in self.sizes if one.memory_mib == size.memory_mib}
        vcpus = size.cpu_cores if len(alike) > 1 else None
        return FunctionKind(vcpus=vcpus, gpu_share=size.gpu_share)

    def size(
        self, memory_mib: int | None, vcpus: float | None = None, gpu_share: float | None = None
    ) -> SizeProfile:
        """Returns the figures of functions of this memory.

        Args:
            memory_mib: of a function; None: not limited.
            vcpus: of a function, where there are several numbers of one memory; None: the fewest.
            gpu_share: of a GPU, where functions have one; None: the smallest.

        Raises:
            RequestError: there is none; names those that there are.
        """
        found = [size for size in self.sizes if size.memory_mib == memory_mib]
        if len({size.cpu_cores for size in found}) > 1 and vcpus is not None:
            found = [size for size in found if math.isclose(size.cpu_cores or 0.0, vcpus)]
        if gpu_share is not None:
            found = [size for size in found if math.isclose(size.gpu_share or 0.0, gpu_share)]
        if found:
            return found[0]
        kinds = ((one.memory_mib, self.kind_of(one)) for one in self.sizes)
        each = (memory_label(memory, kind.vcpus, kind.gpu_share) for memory, kind in kinds)
        raise RequestError(
            f"the profile of {self.job} has no functions of "
            f"{memory_label(memory_mib, vcpus, gpu_share)}: it has {', '.join(each)}; take one of "
            "these, or profile the job with that size, too"
        )


def dump_profile(profile: Profile) -> dict[str, Any]:
    """For JSON."""
    return {"version": VERSION, **dataclass_json.dump(profile)}


def load_profile(tree: Any, origin: str = "the profile", within: str = "") -> Profile:
    """From what JSON has.

    Args:
        tree: what `dump_profile` gave, or a person wrote.
        origin: what it is, in errors, such as its file.
        within: where in that it stands.

    Raises:
        RequestError: names the place of a key, type, sign or number of layers that is wrong.
    """
    rest = json_files.versioned(
        tree, "version", VERSION, origin, within, "measure it anew with dayfly profile"
    )
    return dataclass_json.read(Profile, rest, origin, within=within)


def profile_text(profile: Profile) -> str:
    """What is written to `profile.json`."""
    return json.dumps(dump_profile(profile), indent=1, allow_nan=False) + "\n"


def parse_profile(text: str | bytes, origin: str) -> Profile:
    """From a file's text; as `load_profile`."""
    return load_profile(json_files.parse(text, origin), origin)


def read_profile(file: Path) -> Profile:
    """Raises RequestError, which names the file and the field, for what is no profile."""
    return parse_profile(json_files.read_bytes(file), str(file))
