"""A job on its way to functions: received in a fresh process, without this repository."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from textwrap import dedent

import pytest

from dayfly.errors import DayflyError, RequestError
from dayfly.life.sessions import Session
from dayfly.runs import shipping
from dayfly.runs.shipping import Shipped, receive, ship
from dayfly.wire.stores.files import FileStore
from tests.warm.popen import cold

JOB = """
import dayfly, torch
from torch.nn import functional as F
import shapes
from shapes import SIZE

FACTOR = 3

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(SIZE, len(open("labels.txt").read().split()))

    def forward(self, x):
        return FACTOR * self.inner(shapes.doubled(x))

job = dayfly.Job(
    model=lambda: Net(),
    data=lambda: ([(1, 2)] * 5, [(3, 4)]),
    loss=lambda outputs, targets: F.cross_entropy(outputs, targets),
    optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
    metrics={"late": lambda o, t=None: __import__("later").measure(o)},
)
"""

#: In the fresh process: receive, use everything, tell.
RECEIVE = """
import json, os, sys
from pathlib import Path
from dayfly.runs.shipping import Shipped, receive
from dayfly.wire.stores.files import FileStore
root, scratch, shipped = sys.argv[1:]
store = FileStore(Path(root))
job = receive(Shipped(**json.loads(shipped)), store, Path(scratch) if scratch else None)
here = os.getcwd()
told = {"here": here, "tests": "tests" in sys.modules}
if "train" in sys.modules:
    told["user's module imported by name"] = True
if scratch or os.environ.get("BESIDE"):
    os.chdir(os.environ.get("BESIDE", here))
    import torch
    told["model"] = float(job.model()(torch.ones(1, 4)).numel())
    told["late"] = job.metrics["late"](7)
    told["data"] = len(job.data()[0])
print(json.dumps(told))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "train.py").write_text(JOB)
    (directory / "shapes.py").write_text("SIZE = 4\ndef doubled(x):\n    return 2 * x\n")
    (directory / "later.py").write_text("def measure(o):\n    return [o, 'measured']\n")
    (directory / "labels.txt").write_text("a b c\n")
    return directory


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def python(program: str, *arguments: str, cwd: Path, **environment: str) -> str:
    """Run a program in a process of its own, without the repository on its path."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(dedent(program))
        file.flush()
        done = subprocess.run(
            [sys.executable, "-P", file.name, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ship_apart(code: Path, store: FileStore) -> Shipped:
    """Ship as the command line does, in a process that keeps this one's modules as they are."""
    program = """
        import json, sys
        from dataclasses import asdict
        from pathlib import Path
        from dayfly.runs.shipping import load_job_file, ship
        from dayfly.wire.stores.files import FileStore
        path = Path(sys.argv[1])
        shipped = ship(load_job_file(path), path.parent, FileStore(Path(sys.argv[2])))
        print(json.dumps(asdict(shipped)))
    """
    text = python(program, str(code / "train.py"), str(store.root), cwd=code.parent)
    return Shipped(**json.loads(text))


@pytest.mark.long
def test_a_job_file_arrives_with_what_is_beside_it(
    code: Path, store: FileStore, tmp_path: Path
) -> None:
    shipped = ship_apart(code, store)
    away = code.rename(tmp_path / "gone")  # only what travelled can be used
    scratch = tmp_path / "scratch"
    arguments = (str(store.root), str(scratch), json.dumps(asdict(shipped)))
    with cold():  # has nothing but what it imports
        told = json.loads(python(RECEIVE, *arguments, cwd=tmp_path))
    assert told.pop("tests") is False
    assert told == {
        "here": str(scratch / (shipped.code or "")),
        "model": 3.0,
        "late": [7, "measured"],
        "data": 5,
    }
    again = json.loads(python(RECEIVE, *arguments, cwd=away))
    assert again.items() >= told.items(), "what is unpacked already serves the next function"


@pytest.mark.long
def test_resuming_elsewhere_needs_no_job_file(code: Path, store: FileStore, tmp_path: Path) -> None:
    """The coordinator's working directory stays, and nothing that it unpacked is left behind."""
    shipped = ship_apart(code, store)
    away = code.rename(tmp_path / "gone")
    (tmp_path / "tmp").mkdir()
    arguments = (str(store.root), "", json.dumps(asdict(shipped)))
    environment = {"TMPDIR": str(tmp_path / "tmp"), "BESIDE": str(away)}
    told = json.loads(python(RECEIVE, *arguments, cwd=tmp_path, **environment))
    assert told["here"] == str(tmp_path)
    assert (told["model"], told["late"]) == (3.0, [7, "measured"])
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.long
def test_what_is_in_main_travels_by_value(store: FileStore, tmp_path: Path) -> None:
    program = """
        import json, sys
        from dataclasses import asdict
        from pathlib import Path
        import dayfly, torch
        from dayfly.runs.shipping import ship
        from dayfly.wire.stores.files import FileStore
        def measure(o):
            return [o, "measured"]
        def build():
            return torch.nn.Linear(4, SIZE)
        SIZE = 3
        job = dayfly.Job(
            model=build, data=lambda: ([1] * 5, []), loss=torch.nn.functional.mse_loss,
            optimizer=torch.optim.SGD, metrics={"late": lambda o, t=None: measure(o)},
        )
        print(json.dumps(asdict(ship(job, None, FileStore(Path(sys.argv[1]))))))
    """
    shipped = python(program, str(store.root), cwd=tmp_path)
    told = json.loads(python(RECEIVE, str(store.root), str(tmp_path), shipped, cwd=tmp_path))
    assert (told["model"], told["late"], told["data"]) == (3.0, [7, "measured"], 5)


@pytest.mark.long
def test_what_a_killed_process_unpacked_is_gone_at_the_next_start(
    code: Path, store: FileStore, tmp_path: Path
) -> None:
    """A coordinator that goes on with a run unpacks the code for itself."""
    from tests.job.asked import given, model

    shipped = ship(shipping.Job(**given(model=model)), code, store)
    program = """
        import json, sys
        from pathlib import Path
        from dayfly.runs.shipping import Shipped, receive
        from dayfly.wire.stores.files import FileStore
        receive(Shipped(**json.loads(sys.argv[2])), FileStore(Path(sys.argv[1])), None)
        print(sys.path[0], flush=True)
        sys.stdin.read()
    """
    (tmp_path / "receives.py").write_text(dedent(program))
    command = [sys.executable, str(tmp_path / "receives.py"), str(store.root)]
    command.append(json.dumps(asdict(shipped)))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            unpacked = Path(process.stdout.readline().strip())
            # While it lives: afterwards, any dayfly that starts removes it, another test's as well.
            assert (unpacked / "shapes.py").exists()
        finally:
            process.kill()
    Session.open().close()
    assert not unpacked.parent.exists()


TRAP = b"cos\nmkdir\n(V%s\ntR."  # a pickle that makes a directory


def test_another_pickle_is_refused_before_it_is_loaded(store: FileStore, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    store.put("job/job.pkl", TRAP % str(marker).encode())
    with pytest.raises(DayflyError, match=r"job/job\.pkl in .* is not what was shipped: its SHA-2"):
        receive(Shipped("0" * 64, None), store, tmp_path)
    assert not marker.exists()


def test_another_zip_is_refused_before_anything_is_loaded(store: FileStore, tmp_path: Path) -> None:
    marker, scratch = tmp_path / "ran", tmp_path / "scratch"
    pickled = TRAP % str(marker).encode()
    store.put("job/job.pkl", pickled)
    store.put("job/code.zip", b"PK other")
    before = list(sys.path), Path.cwd()
    with pytest.raises(DayflyError, match=r"job/code\.zip in .*; it was not loaded"):
        receive(Shipped(shipping._sha256(pickled), "1" * 64), store, scratch)
    assert not marker.exists(), "the pickle is what was shipped, but it waits for its code"
    assert (list(sys.path), Path.cwd()) == before
    assert not scratch.exists()


def test_a_pickle_of_something_else_is_refused(store: FileStore, tmp_path: Path) -> None:
    store.put("job/job.pkl", b"\x80\x04N.")
    shipped = Shipped(shipping._sha256(b"\x80\x04N."), None)
    with pytest.raises(DayflyError, match="holds a NoneType, not a Job"):
        receive(shipped, store, tmp_path)


def test_what_is_shipped_and_what_is_not(code: Path, tmp_path: Path) -> None:
    wanted = ["labels.txt", "later.py", "package/__init__.py", "package/data/x.bin", "shapes.py"]
    unwanted = [
        ".env", ".git/config", "package/.hidden", "__pycache__/a.pyc", "node_modules/x/a.js",
        "runs/1/run.json", "kept/run.json", "kept/checkpoint/1", "env/pyvenv.cfg", "env/lib/a.py",
        "package/__pycache__/b.pyc", ".venv/a",
    ]  # fmt: skip
    for name in wanted + unwanted:
        path = code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (code / "link").symlink_to(tmp_path)
    (code / "linked.py").symlink_to("/etc/hostname")
    with zipfile.ZipFile(BytesIO(shipping._zipped(code, set(), print))) as archive:
        assert sorted(archive.namelist()) == sorted([*wanted, "train.py", "linked.py"])
        assert archive.read("package/data/x.bin") == b"package/data/x.bin"


def test_equal_files_have_equal_digests(code: Path, tmp_path: Path) -> None:
    first = shipping._zipped(code, set(), print)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in sorted(code.iterdir(), reverse=True):  # in another order, at another time
        (copy / path.name).write_bytes(path.read_bytes())
    assert shipping._zipped(copy, set(), print) == first
    (copy / "labels.txt").write_text("a b d\n")
    assert shipping._zipped(copy, set(), print) != first


@pytest.mark.parametrize("limit", ["LARGEST_CODE_BYTES", "_MOST_FILES"])
def test_a_directory_that_is_too_large_is_refused(
    limit: str, code: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "big.bin").write_bytes(bytes(3 << 20))
    monkeypatch.setattr(shipping, limit, {"LARGEST_CODE_BYTES": 2 << 20, "_MOST_FILES": 4}[limit])
    with pytest.raises(RequestError, match=r"more than .* \(such as .*\): put the job in a direct"):
        shipping._zipped(code, set(), print)


def test_a_job_that_cannot_be_sent_is_refused(store: FileStore, tmp_path: Path) -> None:
    from tests.job.asked import given, model

    job = shipping.Job(**given(model=model))
    with (tmp_path / "open").open("w") as file:
        held = replace(job, data=lambda: file)
        with pytest.raises(RequestError, match=r"cannot be sent to functions: .*open files, locks"):
            ship(held, None, store)


def test_many_files_are_mentioned(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    shipping._zipped(code, set(), notes.append)
    assert notes == []
    count = sum(path.is_file() for path in code.rglob("*"))
    monkeypatch.setattr(shipping, "_MANY_FILES", count)
    shipping._zipped(code, set(), notes.append)
    (note,) = notes
    assert note.startswith(f"{count} files (0.0 MiB) of {code} travel to the functions")


@pytest.mark.parametrize("name", ["queue", "netrc"])
@pytest.mark.long
def test_a_job_file_may_have_the_name_of_a_module_that_others_need(
    name: str, tmp_path: Path
) -> None:
    """In the command, and in a function that unpacks it: `queue` is loaded, `netrc` is not."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(
        "import dayfly, torch\n"
        "from torch import nn\n"
        "def optimizer(params):\n"
        f"    import {name}\n"
        f"    return {name}.__file__\n"
        "job = dayfly.Job(model=lambda: nn.Linear(1, 1), data='digits',\n"
        "    loss=nn.functional.cross_entropy, optimizer=optimizer, batch_size=1, epochs=1)\n"
    )
    program = f"""
        import importlib, sys
        from pathlib import Path
        from dayfly.runs.shipping import load_job_file, receive, ship
        from dayfly.wire.stores.files import FileStore
        assert ("{name}" in sys.modules) is {name == "queue"}
        root = Path({str(tmp_path)!r})
        store = FileStore(root / "run")
        if sys.argv[1] == "ship":
            job = load_job_file(root / "code" / "{name}.py")
            shipped = ship(job, root / "code", store)
            (root / "shipped").write_text(shipped.job + " " + shipped.code)
        else:
            from dayfly.runs.shipping import Shipped
            shipped = Shipped(*(root / "shipped").read_text().split())
            job = receive(shipped, store, root / "scratch")
        assert str(root) not in job.optimizer(None), job.optimizer(None)
        assert str(root) not in importlib.import_module("{name}").__file__
    """
    for what in ("ship", "receive"):
        python(program, what, cwd=tmp_path)


def test_a_function_that_travels_by_value_keeps_the_name_of_its_file(
    store: FileStore, tmp_path: Path
) -> None:
    """So that tracebacks have it; cloudpickle leaves it out since 3.1.3."""
    file = tmp_path / "elsewhere_job.py"
    file.write_text(
        "import dayfly\n"
        "job = dayfly.Job(model=lambda: 1, data='digits', loss=max, optimizer=len, batch_size=1)\n"
    )
    shipped = ship(shipping.load_job_file(file), None, store)
    assert receive(shipped, store, None).model.__code__.co_filename == str(file)
