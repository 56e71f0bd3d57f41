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
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from dayfly import dataclass_json, json_files
from dayfly.dataclass_json import ABOVE_0, Count, Positive, Range, Real
from dayfly.errors import RequestError
from dayfly.planning.affine import NOTHING as NOTHING
from dayfly.planning.affine import Affine as Affine
from dayfly.planning.conditions import Conditions
from dayfly.planning.decline import check_decline
from dayfly.planning.efficiency import Convergence
from dayfly.planning.figures import Figure as Figure
from dayfly.planning.figures import Transfer as Transfer
from dayfly.planning.function_kinds import FunctionKind, ProfiledGpu, memory_label
from dayfly.wire.shaping import Rates
from dayfly.wire.streams import HostLink, ServingThread

VERSION = 1
#: Computing beside others takes what it takes alone.
_ALONE = Figure.given(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """One layer of the model; of a model that is no list of layers, all of it.

    Attributes:
        name: for people, such as `1 Linear`.
        parameters: bytes of all parameters.
        trained: bytes of the parameters that get a gradient.
        buffers: bytes of all buffers, such as BatchNorm's statistics.
        activations: bytes a sample that are kept for the backward pass.
        output: bytes a sample that go to the next layer.
        gradient: bytes a sample that go back to the layer before.
        tensors: elements of each trained parameter, in the model's order; empty: `trained` is one
            parameter of float32.
        moving: elements of all buffers; None: they are float32.
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

    def __hash__(self) -> int:
        """Of what tells layers apart: caches ask for it often, and all of it takes long."""
        return hash((self.name, self.parameters, self.output))

    def check_read(self) -> None:
        """Raises ValueError if more is trained than there is."""
        if self.trained > self.parameters:
            raise ValueError(
                f"trains {self.trained} bytes of {self.parameters}: give at most as many"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Wall seconds measured for one number of samples; a SizeProfile's lines go through them.

    Attributes:
        samples: of the pass.
        forward: of each layer.
        backward: of each layer.
        data: to read the samples.
        held_mib: peak memory of a pass of the whole model, beside what stays; None: not measured.
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

    `start_s` and `end_s` are of one worker with the whole model.

    Attributes:
        memory_mib: None: not limited.
        cpu_cores: seconds of CPU time a second; None: not limited.
        cpu_period_s: seconds after which a function gets its share of the CPU anew, which bounds
            what it may use at once; 0: the share is spread evenly.
        gpu_share: of the profile's GPU, on which passes run; None: they run on the CPU.
        forward: wall seconds of each layer, by samples.
        backward: likewise.
        data: seconds to read samples and put them together, by samples.
        apply: seconds of the optimizer's step, by bytes of trained parameters.
        step_s: seconds of a step beside all that.
        reduce_s_per_byte: to add a contribution.
        up: the link to the store.
        down: the link from the store.
        sum_cpu_s: fixed CPU seconds of an all-reduce, whatever it moves.
        pass_cpu_s: CPU seconds of a stage's pass beside its layers.
        stage_message_cpu_s: CPU seconds of a message between stages, beside `up.cpu_s` or
            `down.cpu_s`; None: not measured.
        beta: factor by which computing slows down while transfers are under way (FuncPipe's).
        crowd: factor of the CPU time of passes while neighbours compute.
        crowd_cores: cores of the machine on which the neighbours computed; 0: not measured.
        jitter: standard deviation of a pass, relative to its time; 0: not measured.
        init_s: from the request to the handler.
        start_s: from the handler to the first step: reading job, data and checkpoint.
        end_s: from the last step to the end: writing the last checkpoint.
        base_mib: memory of a worker before it has a model.
        rates: limits of its links to the store; None: not limited.
        passes: what was measured, with its spread.
        conditions: of the machine meanwhile; None: not watched.
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

    def __hash__(self) -> int:
        """Of what tells sizes apart: caches ask for it often, and all of it takes long."""
        rate = self.up.peak_bytes_per_s.value
        return hash((self.memory_mib, self.cpu_cores, self.gpu_share, self.forward[:1], rate))

    @property
    def speed(self) -> float:
        """CPU seconds a second that one thread gets."""
        return 1.0 if self.cpu_cores is None else min(1.0, self.cpu_cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """FasDL eq. 4: seconds of a step of B samples with M MiB: a (B + b) / (M + m).

    Attributes:
        a: of the equation, in MiB s a sample.
        b: of the equation, in samples.
        m: of the equation, in MiB.
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

    Predictions take the job's own batch size and epochs unless others are asked for.

    Attributes:
        job: its name.
        platform: on which it was measured, or of whose row it was made.
        imitate: platform whose limits and prices count; None: its own.
        channel: URL without secrets, or the name of a store of the catalogue.
        listed: whether the model is a list of layers, and can be cut.
        samples: of the data, to train on.
        validation_samples: of the data, to validate on.
        sample_bytes: of one sample.
        state_per_trained_byte: bytes of the optimizer's state for each trained byte.
        layers: of the model, in order.
        sizes: by memory, rising.
        fit: time of a step by samples and memory; None: measured at too few sizes.
        how: `measured`, `catalogue` or `by hand`.
        took_s: seconds that measuring took.
        machine: on which it was measured; None: on none.
        store: load of a message on the one thread of its store; None: no such thread, or not
            measured.
        store_bytes_per_s: bandwidth of the store each way, for all functions together; None: not
            limited.
        host: what functions on one machine share; None: nothing.
        decline: pairs (functions, part of a function's bandwidth that is left while so many run);
            linear between them (`planning.decline`).
        measures: numbers that a validation sums for each block: four, and one a metric.
        gpu: of the functions; None: they have none.
        flops: of each layer, by samples; empty: not known.
        batch_size: the job's; None: nobody said.
        epochs: the job's.
        accumulate: the job's.
        validate_every: the job's.
        clips: whether the job clips gradients.
        batch_per_worker: samples of a step of each worker, if the batch follows their number;
            `batch_size` is one worker's then.
        convergence: samples that methods and batch sizes take to one loss; None: not measured.
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
    convergence: Convergence | None = None

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
    tree = json_files.parse(text, origin)
    if "settings" in tree:
        raise RequestError(f"{origin} is a plan, and no profile: give what dayfly profile wrote")
    return load_profile(tree, origin)


def read_profile(file: Path) -> Profile:
    """Raises RequestError, which names the file and the field, for what is no profile."""
    return parse_profile(json_files.read_bytes(file), str(file))
