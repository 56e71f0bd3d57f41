"""Hydrozoa's alpha and beta of a ring's rounds, by regression over a profile's links (section 3.4).

    p, A       bytes of a shard's parameters, and replicas that sum them
    D          bytes a second of a container
    T          seconds of the ring, as its own cost has it

    T = 2 (A - 1) (p/(A D) + alpha p/A + beta)

The paper runs rings of dummy data and fits a line. Here the profile has measured what a message
takes over its links (latency, saturation, CPU time, adding up), and the ring's cost follows from
that, so the line goes through costs of rings of several sizes:

    seconds of a round, T/(2 (A - 1)), by bytes of a round, p/A:   beta + (1/D + alpha) p/A
"""

from __future__ import annotations

from itertools import product

from dayfly.planning.configuration import ITEM_BYTES
from dayfly.planning.fits import fit_affine
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.virtual_cost import cost_of

_RING = "ring"
#: Shards of the model that the rings are of, as parts of it, and their replicas.
_PARTS, _MEMBERS = (1.0, 0.5, 0.25, 0.125, 0.0625), (2, 4, 8)


def alpha_and_beta(profile: Profile, size: SizeProfile, bytes_per_s: float) -> tuple[float, float]:
    """Returns alpha, in s a byte, and beta, in s a round; neither is below 0.

    Args:
        profile: of the job, over direct links.
        size: of the containers.
        bytes_per_s: D.
    """
    link, how = ChannelModel.of(profile).link(size), collective(_RING, None, max(_MEMBERS))
    whole = sum(layer.parameters + layer.buffers for layer in profile.layers) / ITEM_BYTES
    rounds = []
    for part, members in product(_PARTS, _MEMBERS):
        length = max(members, round(part * whole))
        one = AllReduce(members=members, length=length, link=link)
        seconds = cost_of(_RING, how, one).seconds / (2 * (members - 1))
        rounds.append((length * ITEM_BYTES / members, seconds))
    line = fit_affine(rounds)
    return max(0.0, line.each - 1 / bytes_per_s), line.fixed
