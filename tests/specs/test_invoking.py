"""Who invokes which function, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.specs.invoking import Invoking


@pytest.mark.parametrize(
    ("how", "functions", "invoked_s"),
    [
        (Invoking(call_s=1.0), 4, [1, 2, 3, 4]),
        (Invoking(call_s=1.0, at_once=2), 5, [1, 1, 2, 2, 3]),
        # 0 and 1 are invoked at 1 and 2, and can invoke others 5 s later.
        (Invoking(call_s=1.0, fan_out=2), 7, [1, 2, 7, 8, 8, 9, 13]),
        (Invoking(call_s=1.0, fan_out=2, at_once=2), 6, [1, 1, 7, 7, 7, 7]),
        (Invoking(fan_out=1), 3, [0, 5, 10]),
        (Invoking(), 3, [0, 0, 0]),
    ],
)
def test_when_functions_are_invoked(how: Invoking, functions: int, invoked_s: list[float]) -> None:
    assert how.invoked_s([5.0] * functions) == invoked_s


def test_what_a_dead_function_has_not_invoked_the_coordinator_does() -> None:
    """Function 0 is invoked at 1, and calls from 6 to 7 and from 7 to 8: it dies at 7.5."""
    lives = [6.5, *[float("inf")] * 5]
    assert Invoking(call_s=1.0, fan_out=2).invoked_s([5.0] * 6, lives) == [1, 2, 7, 8.5, 8, 9]


@given(st.integers(1, 200), st.one_of(st.none(), st.integers(1, 7)))
def test_each_function_is_invoked_once_by_one_that_is_invoked_before(
    functions: int, fan_out: int | None
) -> None:
    how = Invoking(fan_out=fan_out)
    invoked = [at for one in range(functions) for at in how.invoked_by(one, functions)]
    own = [one for one in range(functions) if how.invoker(one) is None]
    assert sorted(own + invoked) == list(range(functions))
    for one in range(functions):
        for other in how.invoked_by(one, functions):
            assert how.invoker(other) == one < other


def test_a_tree_has_as_many_levels_as_a_logarithm() -> None:
    """Calls take nothing: the time is the depth. 2 + 4 + ... + 512 functions are 9 levels."""
    assert max(Invoking(fan_out=2).invoked_s([1.0] * 1022)) == 8


@pytest.mark.parametrize(
    "wrong", [{"call_s": -1.0}, {"call_s": 10.1}, {"at_once": 0}, {"fan_out": 0}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError, match=r"give (a|0)"):
        Invoking(**wrong)  # type: ignore[arg-type]
