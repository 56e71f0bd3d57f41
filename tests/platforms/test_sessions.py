"""Sessions: their directory, their lock, and the sweeping of killed ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dayfly import owned
from dayfly.errors import RequestError
from dayfly.life.sessions import Session

pytestmark = pytest.mark.long


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / f"dayfly-{os.geteuid()}"


def test_a_session_has_a_private_directory_and_removes_it(tmp_path: Path, home: Path) -> None:
    session = Session.open(tmp_path)
    assert session.root.parent == home
    assert stat.S_IMODE(session.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    (session.root / "messages").mkdir()
    (session.root / "messages" / "one").write_text("text")
    session.close()
    session.close()
    assert not session.root.exists()


def test_the_default_base_can_be_used() -> None:
    with Session.open() as session:
        assert session.root.is_dir()
    assert not session.root.exists()


def test_a_living_session_is_not_swept(tmp_path: Path) -> None:
    with Session.open(tmp_path) as first, Session.open(tmp_path) as second:
        assert first.root.exists()
        assert first.id != second.id


def test_what_a_killed_session_left_is_swept(tmp_path: Path, home: Path) -> None:
    code = (
        "import os, sys, pathlib, signal; from dayfly.life.sessions import Session;"
        "s = Session.open(pathlib.Path(sys.argv[1])); (s.root / 'x').write_text('y');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, env=environment())
    (orphan,) = sessions_in(home)
    assert (orphan / "x").exists()
    half_made = home / "0123456789ab"  # its maker was killed before it could lock
    half_made.mkdir()
    with Session.open(tmp_path) as session:
        assert sessions_in(home) == [session.root]


def test_many_start_and_end_at_once(tmp_path: Path, home: Path) -> None:
    code = (
        "import sys, pathlib; from dayfly.life.sessions import Session\n"
        "for _ in range(20):\n"
        "    with Session.open(pathlib.Path(sys.argv[1])) as s:\n"
        "        (s.root / 'mine').write_text(s.id)\n"
        "        assert (s.root / 'mine').read_text() == s.id\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    racers = [subprocess.Popen(command, env=environment()) for _ in range(4)]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0, 0]
    assert sessions_in(home) == []


def test_a_symbolic_link_is_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    home.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="not a directory"):
        Session.open(tmp_path)


def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    with pytest.raises(RequestError, match="open to other users"):
        Session.open(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, 12345, -1)
    with pytest.raises(RequestError, match="belongs to user 12345"):
        Session.open(tmp_path)


def test_only_cgroups_of_this_session_are_recorded(tmp_path: Path) -> None:
    with (
        Session.open(tmp_path) as session,
        pytest.raises(ValueError, match="must contain the session id"),
    ):
        session.record_cgroup(Path("/sys/fs/cgroup/memory/somebody-elses"))


@pytest.mark.parametrize("cut", ["\n", "\u2028", "\r", "\x0b", "\x85"])
def test_a_name_with_a_line_break_is_one_name(cut: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("x")
    odd = Path(f"{precious}{cut}", "messages")
    with Session.open(tmp_path) as session:
        session.record_directory(odd, "me")
        owned.claim(odd, "me")
        session.record_directory(precious, "me")  # without a marker, whatever a record says
        session.record_cgroup(tmp_path / f"x-{session.id}{cut}{precious}-{session.id}")
    assert (precious / "thesis").exists()
    assert not odd.exists()


def test_what_a_record_names_stays_once_a_link_leads_there(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    with Session.open(tmp_path) as session:
        session.record_directory(tmp_path / "place" / "run", "me")
        owned.claim(tmp_path / "place" / "run", "me")
        (tmp_path / "place").rename(moved)
        (tmp_path / "place").symlink_to(moved)
    assert (moved / "run").exists()


def test_a_record_that_was_cut_short_or_is_none_is_passed_over(tmp_path: Path) -> None:
    with Session.open(tmp_path) as session:
        scratch = session.scratch("some")
        (scratch / "file").write_text("x")
        with (session.root / "record").open("ab") as file:
            file.write(b'\xff\n[1]\n{"directory": 1}\n{"cgroup": "/x')
    assert not scratch.exists()
    assert not session.root.exists()


def test_a_directory_that_is_no_cgroup_stays(tmp_path: Path) -> None:
    with Session.open(tmp_path) as session:
        named = tmp_path / f"mine-{session.id}"
        named.mkdir()
        session.record_cgroup(named)
    assert named.is_dir()


def sessions_in(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.is_dir()]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
