"""The faults that are seeded."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOMS, ROOT, SOURCE, chosen
from tests.mutants.mutate import mutants


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a < b", ["(a <= b)"]),
        ("a is not None", ["(a is None)"]),
        ("x = a * b", ["x = (a / b)"]),
        ("x = a and not b", ["x = (a or not b)", "x = a and (b)"]),
        ("x = 1", ["x = (2)"]),
        ("x = True", ["x = (False)"]),
        ("if é:\n    f(x)\n", ["if (False):\n    f(x)\n", "if é:\n    pass\n"]),
        ("def f(a: x[1]) -> y[2]:\n    'text'\n    return f'{a + 1}'", []),
        ("if a:\n  if b:\n    c", ["if (False):\n  if b:\n    c", "if a:\n  if (False):\n    c"]),
    ],
)
def test_one_change_each(text: str, changed: list[str]) -> None:
    assert [mutant.applied(text) for mutant in mutants(text)] == changed


@pytest.mark.long
def test_every_mutant_of_the_house_is_python_and_another() -> None:
    for _, file, mutant in chosen(list(ROOMS), 100, seed=3):
        text = file.read_text()
        assert mutant.applied(text) != text
        compile(mutant.applied(text), str(file), "exec")


@pytest.mark.long
def test_the_same_seed_chooses_the_same() -> None:
    assert chosen(["life"], 20, seed=1) == chosen(["life"], 20, seed=1)
    assert chosen(["life"], 20, seed=1) != chosen(["life"], 20, seed=2)


def test_rooms_and_their_tests_are_there() -> None:
    for room, folders in ROOMS.items():
        assert (SOURCE / room).is_dir()
        assert all(any((ROOT / "tests" / name).glob("test_*.py")) for name in folders)
