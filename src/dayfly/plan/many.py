"""Many workers."""

from dayfly.errors import RequestError

MOST_SIMULATED = 64


def many_step(*a):
    raise RequestError("many workers: later")


def many_validation(*a):
    raise RequestError("many workers: later")
