"""dayfly's own data parallel training in the same place: what the product predicts.

As many functions as LambdaML, of the same memory, and the collective `overlapped`: buckets are
summed beside the backward pass and each other, and both directions of a line are busy at once.
"""

from __future__ import annotations

from functools import cache

from benchmarks.parts.papers.funcpipe.peers import Peer
from benchmarks.parts.papers.funcpipe.setting import BASE_MIB, Setting, layers
from benchmarks.parts.papers.rows import store
from dayfly.planning.catalogued import Assumed, JobFacts, profile_of
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Affine, LayerBytes

COLLECTIVE = "overlapped"


@cache
def facts(name: str) -> JobFacts:
    """A model of the paper, as a profile from the catalogue needs it; data do not matter here."""
    parts = layers(name)
    return JobFacts(
        job=name,
        listed=True,
        samples=50_000,
        validation_samples=0,
        sample_bytes=0.0,
        state_per_trained_byte=0.0,
        layers=tuple(
            LayerBytes(
                name=str(number),
                parameters=part.parameter_bytes,
                trained=part.parameter_bytes,
                activations=part.activation_bytes,
                output=part.output_bytes,
                gradient=part.output_bytes,
            )
            for number, part in enumerate(parts)
        ),
        flops=tuple(Affine(0.0, part.flops) for part in parts),
    )


@cache
def data_parallel_s(name: str, batch: int, beside: Peer, at: Setting) -> float:
    """Seconds of a step on the functions of a peer."""
    # Nothing is started here, so how long that takes does not matter.
    assumed = Assumed(base_mib=BASE_MIB, cold_start_s=0.0)
    profile = profile_of(facts(name), at.platform, store("s3"), at.memory_mib, assumed)
    configuration = Configuration(
        workers=beside.functions,
        replicas=beside.functions,
        memory_mib=(beside.memory_mib,),
        collective=COLLECTIVE,
        batch_size=batch,
    )
    return predict(profile, configuration, at.platform, store("s3")).step_s
