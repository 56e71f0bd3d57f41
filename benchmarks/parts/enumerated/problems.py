"""Random problems, small enough to go through all plans of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReduceProblem
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.planning.decline import Decline
from dayfly.planning.profile import Affine, Figure, Profile, SizeProfile, Transfer
from dayfly.planning.profile import LayerBytes as ProfiledLayer
from dayfly.wire.streams import HostLink

_MIB = 2.0**20
_S3 = StoreFacts(name="s3", usd_per_put=5e-6, usd_per_get=4e-7)


def decline(chance: Random) -> Decline:
    """None, or one that begins at two functions or later, and may be steep."""
    if chance.random() < 0.6:
        return ()
    first, last = sorted(chance.sample(range(2, 13), 2))
    return ((first, 1.0), (last, chance.uniform(0.05, 0.9)))


def stages(chance: Random) -> StagesOverStore:
    """FuncPipe's: 3 to 6 layers, 2 to 4 memory sizes, replicas that divide the micro-batches."""
    count = chance.randint(3, 6)
    return StagesOverStore(
        layers=_layers(chance, count),
        options=_options(chance, count, chance.randint(2, 4 if count < 6 else 3)),
        degrees=(1, 2, chance.choice((3, 4, 8))),
        micro_batches=chance.choice((2, 4, 8, 24)),
        latency_s=chance.choice((0.0, 0.04, 0.5)),
        beta=chance.choice((1.0, 1.2)),
        pipelined=chance.choice(((True,), (True, False))),
        functions_at_once=chance.choice((None, None, 4, 8)),
        store_bytes_per_s=chance.choice((math.inf, 4e7, 3e8)),
        decline=decline(chance),
        host=host(chance),
    )


def mixed(chance: Random) -> StagesOverStore:
    """The same with different replicas for each stage: 2 to 4 layers, 2 memory sizes; often such
    that a stage cannot hold all micro-batches."""
    count = chance.randint(2, 4)
    made = stages(chance)
    return replace(
        made,
        layers=_layers(chance, count),
        options=_options(chance, count, 2),
        degrees=(1, 2, chance.choice((3, 4))),
        micro_batches=chance.choice((4, 12)),
        mixed=True,
    )


def shards(chance: Random) -> StagesOverLinks:
    """Hydrozoa's: 6 to 13 layers, one container, up to 12 of them."""
    count = chance.randint(6, 13)
    container = _options(chance, count, 1)[0]
    return StagesOverLinks(
        micro_batches=tuple(
            MicroBatches(micro_batches=m, layers=_layers(chance, count), container=container)
            for m in chance.sample((2, 4, 6, 12, 24), 2)
        ),
        containers=tuple(chance.sample(range(1, 13), 4)),
        ring_s_per_byte=chance.choice((0.0, 1e-8)),
        ring_round_s=chance.choice((0.0, 0.05)),
        decline=decline(chance),
        host=host(chance),
    )


def layers_of(problem: StagesOverStore | StagesOverLinks) -> int:
    """How many layers there are."""
    one = problem.micro_batches[0] if isinstance(problem, StagesOverLinks) else problem
    return len(one.layers)


def host(chance: Random) -> HostLink | None:
    """What two or three functions on one machine share; mostly nothing."""
    if chance.random() < 0.6:
        return None
    return HostLink(functions=chance.choice((2, 3)), bytes_per_s=chance.choice((3e7, 1e8)))


def k_reduce(chance: Random) -> KReduceProblem:
    """FasDL's: up to 12 functions of 3 sizes, any number of aggregators."""
    sizes = tuple(
        FunctionSize(
            memory_mib=memory,
            train=Affine(chance.uniform(0.0, 0.3), chance.uniform(0.005, 0.1) * 1024 / memory),
            up=_way(chance.choice((2e6, 2e7, 7e7)), chance.choice((0.0, 0.04))),
            down=_way(chance.choice((2e6, 2e7, 7e7)), chance.choice((0.0, 0.04))),
            most_samples=chance.randint(20, 90),
            usd_per_s=memory * chance.uniform(1e-8, 2e-8),
            start_s=chance.choice((0.0, 1.0)),
        )
        for memory in (1024, 2048, 4096)
    )
    return KReduceProblem(
        size_bytes=10 ** chance.uniform(5, 8.5),
        data_bytes=chance.choice((0.0, 1e7, 1e9)),
        samples=chance.randint(500, 5000),
        epochs=1.0,
        sizes=sizes,
        workers=tuple(range(1, chance.randint(4, 12) + 1)),
        aggregators_samples=tuple(sorted(chance.sample(range(1, 40), 6))),
        most_global_samples=chance.randint(100, 600),
        store=chance.choice((None, _S3, replace(_S3, usd_per_gb_up=1.0, usd_per_gb_down=3.0))),
        store_bytes_per_s=chance.choice((math.inf, 5e7, 3e8)),
        decline=decline(chance),
        host=host(chance),
    )


def job(chance: Random) -> Profile:
    """A job on Lambda over S3: 1 to 6 layers of 0.1 to 60 MB, a validation of any size; or `quick`,
    of which steps take less than a period of a CPU limit, mostly."""
    count = chance.randint(1, 6)
    seconds = [10 ** chance.uniform(-4, -1.5) for _ in range(count)]
    layers = tuple(_profiled(chance, at) for at in range(count))
    batch = chance.choice((8, 16, 24, 40))
    made = Profile(
        job="random",
        platform="local",
        imitate="aws-lambda",
        channel="s3",
        listed=True,
        samples=batch * chance.randint(1, 12) + chance.randint(0, batch - 1),
        validation_samples=chance.choice((0, 64, 5000)),
        sample_bytes=1000.0,
        state_per_trained_byte=chance.choice((0.0, 1.0, 2.0)),
        layers=layers,
        sizes=tuple(_size(chance, memory, seconds) for memory in (512, 1769, 3538)),
        how="catalogue",
        batch_size=batch,
        decline=decline(chance),
    )
    return quick(chance, made) if chance.random() < 0.3 else made


def quick(chance: Random, made: Profile) -> Profile:
    """The same with layers a thousandth as large and samples enough, over S3 or a free store, and
    functions as they are measured: a CPU limit by periods of 20 ms, messages that take CPU time,
    passes that vary."""
    layers = tuple(
        replace(
            one,
            parameters=4 * elements,
            trained=4 * elements,
            tensors=(elements,),
            activations=one.activations / 100,
            output=one.output / 100,
            gradient=one.gradient / 100,
        )
        for one in made.layers
        for elements in [max(10, sum(one.tensors) // 1000)]
    )
    part, latency_s = 10 ** chance.uniform(-2, -1), 10 ** chance.uniform(-4, -2.5)
    message_s, jitter = chance.choice((0.0, 1e-4, 3e-4)), chance.choice((0.0, 0.05))

    def way(one: Transfer) -> Transfer:
        return replace(
            one, latency_s=Figure.given(latency_s), cpu_s=message_s, cpu_s_per_byte=4e-10
        )

    sizes = tuple(
        replace(
            one,
            cpu_period_s=0.02,
            forward=tuple(line.times(part) for line in one.forward),
            backward=tuple(line.times(part) for line in one.backward),
            step_s=Figure.given(0.0005 / one.speed),
            sum_cpu_s=message_s,
            jitter=jitter,
            up=way(one.up),
            down=way(one.down),
        )
        for one in made.sizes
    )
    return replace(
        made,
        layers=layers,
        sizes=sizes,
        samples=300 * made.samples,
        channel=chance.choice((made.channel, "file:///dev/shm")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersProblem:
    """A job, types of servers that may be its store, and numbers of functions."""

    profile: Profile
    types: tuple[StoreFacts, ...]
    workers: tuple[int, ...]


def servers(chance: Random) -> ServersProblem:
    """A job on up to 6 functions, and 2 to 5 types of machines with a parameter server."""
    types = tuple(
        StoreFacts(
            name=f"vm-{at}",
            latency_s=chance.choice((0.001, 0.001, 0.005)),
            bytes_per_s=chance.choice((5e7, 1e8, 2e8, 5e8)),
            server_vcpus=2.0,
            server_memory_mib=chance.choice((256, 1024, 8192)),
            usd_per_server_hour=chance.choice((0.05, 0.1, 0.2, 0.4)) * chance.uniform(0.8, 1.2),
            server_step_s=chance.choice((1.0, 1.0, 3600.0)),
            server_min_s=chance.choice((None, 60.0)),
        )
        for at in range(chance.randint(2, 5))
    )
    return ServersProblem(
        profile=job(chance), types=types, workers=tuple(range(1, chance.randint(2, 6) + 1))
    )


def job_of_vcpus(chance: Random, platform: FunctionPlatform) -> Profile:
    """A job on functions of each memory and each number of vCPUs that the platform has."""
    made = job(chance)
    seconds = [one.each for one in made.sizes[0].forward]
    return replace(
        made,
        imitate=platform.name,
        sizes=tuple(
            _size(chance, memory_mib, seconds, vcpus)
            for memory_mib in (512, 1024, 2048, 4096, 8192)
            for vcpus in platform.vcpu_choices(memory_mib)
        ),
    )


def _size(
    chance: Random, memory_mib: int, seconds: list[float], vcpus: float | None = None
) -> SizeProfile:
    speed, zero = vcpus or memory_mib / 1769, Figure.given(0.0)
    way = _way(chance.choice((2e7, 7e7)), 0.04)
    return SizeProfile(
        memory_mib=memory_mib,
        cpu_cores=speed,
        forward=tuple(Affine(0.0, one / speed) for one in seconds),
        backward=tuple(Affine(0.0, 2 * one / speed) for one in seconds),
        data=Affine(0.0, 0.0),
        apply=Affine(0.0, 0.0),
        step_s=zero,
        reduce_s_per_byte=0.0,
        up=way,
        down=way,
        beta=Figure.given(1.0),
        init_s=Figure.given(0.5),
        start_s=Figure.given(0.2),
        end_s=zero,
        base_mib=Figure.given(150.0),
    )


def _profiled(chance: Random, at: int) -> ProfiledLayer:
    elements = round(10 ** chance.uniform(4.4, 7.1))
    passed = chance.choice((1e3, 1e4, 1e5))
    return ProfiledLayer(
        name=f"layer-{at}",
        parameters=4 * elements,
        trained=4 * elements,
        tensors=(elements,),
        activations=2 * passed,
        output=passed,
        gradient=passed,
    )


def _way(bytes_per_s: float, latency_s: float) -> Transfer:
    given = Figure.given
    return Transfer(latency_s=given(latency_s), peak_bytes_per_s=given(bytes_per_s))


def _layers(chance: Random, count: int) -> tuple[LayerBytes, ...]:
    def some(most: float) -> float:
        return float(round(chance.choice((0.0, 0.1, 1.0)) * chance.uniform(1, most) * _MIB))

    return tuple(
        LayerBytes(
            parameter_bytes=some(100),
            activation_bytes=some(60),
            output_bytes=some(20),
            gradient_bytes=some(20),
        )
        for _ in range(count)
    )


def _options(chance: Random, count: int, many: int) -> tuple[MemoryOption, ...]:
    seconds = [chance.uniform(0.0, 1.0) for _ in range(count)]
    found = []
    for memory in sorted(chance.sample((512, 768, 1024, 1536, 2048), many)):
        speed = (memory / 1024) ** chance.uniform(0.5, 1.1)
        found.append(
            MemoryOption(
                memory_mib=memory,
                forward_s=tuple(one / speed for one in seconds),
                backward_s=tuple(2 * one / speed for one in seconds),
                bytes_per_s=chance.choice((1e6, 2e7, 7e7)),
                base_bytes=100 * _MIB,
                usd_per_s=memory * chance.uniform(1.2e-8, 2e-8),
            )
        )
    return tuple(found)
