"""`dayfly bench planning`: how fast the machine is beside what is measured."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import fields
from pathlib import Path

import pytest
from benchmarks.parts.planning.at_pace import at_pace
from benchmarks.parts.planning.configurations import CHOSEN
from benchmarks.parts.planning.forecast import forecast, kept
from benchmarks.parts.planning.pace import Pace, pace_text, paces, read_pace

from benchmarks import planning
from dayfly.errors import RequestError
from dayfly.planning.profile import Affine, Figure, Fit, Pass, SizeProfile, profile_text
from tests.cli import command
from tests.planning.by_hand import given, layer, profile, size, transfer

pytestmark = pytest.mark.long

LAYERS = [layer("one", 1000), layer("two", 10)]
WAY = transfer(latency_s=0.01, cpu_s=0.002, cpu_s_per_byte=3e-9)
SIZE = size(
    2,
    memory_mib=663,
    cpu_cores=0.375,
    data=Affine(0.25, 0.5),
    apply=Affine(0.125, 1.0),
    step_s=Figure(0.002, 0.001, 0.004, 9),
    reduce_s_per_byte=4e-9,
    up=WAY,
    down=WAY,
    beta=given(1.25),
    pass_cpu_s=0.0005,
    passes=(
        Pass(samples=8, forward=(given(1.0),) * 2, backward=(given(2.0),) * 2, data=given(3.0)),
    ),
)
PROFILE = profile(LAYERS, SIZE, fit=Fit(a=2.0, b=3.0, m=4.0, error=0.125))


def test_a_slower_machine_takes_longer_for_all_that_the_cpu_does() -> None:
    slower = at_pace(PROFILE, 2.0)
    [found] = slower.sizes
    assert found.forward == (Affine(0.0, 0.002),) * 2
    assert found.backward == (Affine(0.0, 0.004),) * 2
    assert (found.data, found.apply) == (Affine(0.5, 1.0), Affine(0.25, 2.0))
    assert found.step_s == Figure(0.004, 0.002, 0.008, 9)
    assert (found.reduce_s_per_byte, found.pass_cpu_s) == (8e-9, 0.001)
    assert found.up == found.down == transfer(latency_s=0.01, cpu_s=0.004, cpu_s_per_byte=6e-9)
    assert (found.init_s, found.start_s, found.end_s) == (given(0.5), given(1.0), given(0.25))
    [one] = found.passes
    assert (one.forward, one.backward) == ((given(2.0),) * 2, (given(4.0),) * 2)
    assert (one.samples, one.data) == (8, given(6.0))
    assert slower.fit == Fit(a=4.0, b=3.0, m=4.0, error=0.125)


def test_nothing_else_changes() -> None:
    changed = {
        *("forward", "backward", "data", "apply", "step_s", "reduce_s_per_byte", "up", "down"),
        *("init_s", "start_s", "end_s", "passes", "pass_cpu_s"),
    }
    [found] = at_pace(PROFILE, 2.0).sizes
    names = {one.name for one in fields(SizeProfile)}
    assert {name for name in names if getattr(found, name) != getattr(SIZE, name)} == changed
    assert at_pace(PROFILE, 1.0) == PROFILE


def test_a_step_that_only_computes_is_as_much_longer() -> None:
    one = CHOSEN["cnn-one-small"]
    only = profile(LAYERS, size(2, memory_mib=442, cpu_cores=0.25))
    plain, slower = (forecast(at_pace(only, factor), one, {"file": None}) for factor in (1.0, 1.5))
    assert slower["step_s"] == pytest.approx(1.5 * plain["step_s"], rel=0.05)
    assert slower["memory_mib"] == pytest.approx(plain["memory_mib"])


def test_a_kept_profile_has_its_pace(tmp_path: Path) -> None:
    assert kept("cnn-file-lambda", None) is None
    assert kept("cnn-file-lambda", tmp_path) is None
    (tmp_path / "cnn-file-lambda.json").write_text(profile_text(PROFILE))
    (tmp_path / "cnn-file-lambda.pace.json").write_text(pace_text(0.0625, 1e9))
    found = kept("cnn-file-lambda", tmp_path)
    assert found is not None
    assert (found.profile, found.pass_s, found.made_s) == (PROFILE, 0.0625, 1e9)


def test_a_pace_that_an_earlier_version_wrote_does_not_say_when(tmp_path: Path) -> None:
    (tmp_path / "x.pace.json").write_text('{"pass_s": 0.5}')
    assert read_pace(tmp_path / "x.pace.json") == (0.5, None)


def test_a_kept_profile_without_a_pace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlp-ps-lambda.json").write_text(profile_text(PROFILE))
    with pytest.raises(RequestError, match=r"has no mlp-ps-lambda\.pace\.json beside it"):
        planning.run(["--only", "mlp-4-server-push-pull", "--profiles", str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no", "is no pace"),
        ("[1]", "is no pace"),
        ("{}", "is no pace"),
        ('{"pass_s": null}', "is no pace"),
        ('{"pass_s": 0}', "pass_s is 0: give seconds above 0"),
        ('{"pass_s": NaN}', "pass_s is nan: give seconds above 0"),
    ],
)
def test_what_is_no_pace_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "x.pace.json"
    file.write_text(text)
    with pytest.raises(RequestError, match=why):
        read_pace(file)


def test_a_probe() -> None:
    """It computes while what is measured lasts, and no longer, and ends with its block."""
    with paces(["mlp", "mlp"]) as probes:
        assert list(probes) == ["mlp"]
        [process] = multiprocessing.active_children()

        def computes() -> None:
            began_s = cpu_s(process.pid)
            command.eventually("its computing", lambda: cpu_s(process.pid) > began_s + 0.1)

        for measured in (computes, lambda: None):
            _, pass_s = probes["mlp"].beside(measured)
            assert pass_s > 0
        # One that still computed would have taken 0.5 s; waking up once may count a tick of 10 ms.
        began_s = cpu_s(process.pid)
        time.sleep(0.5)
        assert cpu_s(process.pid) - began_s < 0.1
        assert process.is_alive()
    assert not multiprocessing.active_children()


def cpu_s(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_probe_ends_with_its_pipe() -> None:
    with Pace("mlp") as pace:
        [process] = multiprocessing.active_children()
        pace._ranks._pipes[0].close()
        process.join(60.0)
        assert process.exitcode == 0


def test_a_probe_beside_what_fails_can_be_asked_again() -> None:
    def fails() -> None:
        raise OSError("no")

    with Pace("mlp") as pace:
        with pytest.raises(OSError, match="no"):
            pace.beside(fails)
        assert pace.beside(lambda: 7)[0] == 7
