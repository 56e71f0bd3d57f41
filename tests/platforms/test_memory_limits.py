"""Memory that this machine does not have: a function's is refused, all functions' is said."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError
from dayfly.life.platforms.local import check_machine, machine_mib, overcommitted


def test_a_function_larger_than_the_machine() -> None:
    check_machine(16000, 16000)
    text = "functions of 99999999 MiB are larger than this machine, which has 16000 MiB: lower"
    with pytest.raises(RequestError, match=text):
        check_machine(99_999_999, 16_000)


def test_functions_that_are_larger_together() -> None:
    assert overcommitted([8000, 8000], 16000) is None
    assert overcommitted([None] * 100, 16000) is None
    assert overcommitted([8000, None, 9000], 16000) == (
        "3 functions may take 17000 MiB together, and this machine has 16000: it runs out of "
        "memory before they reach their limits"
    )


def test_this_machine() -> None:
    assert 100 < machine_mib() < 100_000_000
