"""What others took of the machine, by files as the kernel has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.runs.profiling import watch
from dayfly.runs.profiling.watch import MachineWatch


class Kernel:
    """A /proc of three processes: 10 is dayfly's, 11 its child, 12 somebody else's."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        self.now = 100.0
        self.tell(busy=0, stolen=0, own=0, child=0, other=0)

    def tell(self, *, busy: int, stolen: int, own: int, child: int, other: int) -> None:
        """CPU time in ticks of a hundredth of a second."""
        (self.root / "stat").write_text(f"cpu  {busy} 0 0 1000 50 0 0 {stolen} 0 0\ncpu0 1\n")
        for pid, parent, ticks in ((10, 1, own), (11, 10, child), (12, 1, other)):
            (self.root / str(pid)).mkdir(exist_ok=True)
            fields = [parent, *[0] * 9, ticks, 0, 0, 0, 20, 0]
            text = f"{pid} (a ) b) S {' '.join(map(str, fields))}\n"
            (self.root / str(pid) / "stat").write_text(text)


def test_stolen_and_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, monkeypatch)
    watched = MachineWatch(tmp_path, 10, times=2)
    kernel.now = 104.0
    # 3 s of computing, of which 1 s dayfly's, and 1 s that was wanted and not had.
    kernel.tell(busy=300, stolen=100, own=40, child=60, other=200)
    assert watched.stolen() == pytest.approx(0.25)
    assert watched.other_cores() == pytest.approx(0.5)
    watched.before_messages()
    kernel.tell(busy=900, stolen=100, own=40, child=60, other=800)
    found = watched.conditions(0.1)
    assert found.other_cores == pytest.approx(0.5)
    assert found.stolen == pytest.approx(0.1)
    assert len(found.pace_s) == 3
    assert min(found.pace_s) > 0


@pytest.mark.parametrize("text", [None, "cpu 1 2 3\n", "\n"])
def test_a_kernel_that_does_not_tell(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    found = MachineWatch(tmp_path, times=2).conditions(0.0)
    assert (found.stolen, found.other_cores) == (None, None)
