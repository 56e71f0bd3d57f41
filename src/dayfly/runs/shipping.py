"""The user's job on its way to the functions: pickled code, and the files beside it.

    job/job.pkl    the Job by cloudpickle; the user's own modules travel in it by value
    job/code.zip   the directory of the job's file, if it has one: all files but those of `_files`

A function checks the SHA-256 digests, which came with its invocation, before it loads either.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import io
import os
import sys
import traceback
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

import cloudpickle

from dayfly.data.base import paths_of
from dayfly.dataclass_json import SHA256, Name
from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.life.failure import installed
from dayfly.life.sessions import Session
from dayfly.wire.stores.base import Store

#: What a job's directory may hold, so that a data set or a home directory is not shipped by chance.
LARGEST_CODE_BYTES = 50 * 2**20
_MOST_FILES = 5000
#: From so many files on, the user is told how many travel.
_MANY_FILES = 200
#: Modules of the standard library that do something when they are imported.
_NOT_TO_IMPORT = {"antigravity", "this"}
_NOT_SHIPPED = {"__pycache__", "node_modules"}
_PICKLE, _CODE = "job.pkl", "code.zip"


@dataclass(frozen=True, slots=True)
class Shipped:
    """Digests (SHA-256, hexadecimal) of a job in the store; no code: None.

    Attributes:
        folder: where it is.
    """

    job: SHA256
    code: SHA256 | None
    folder: Name = "job"


class _AsItIs(SourceFileLoader):
    """Compiles a file anew each time: compiled ones are told apart by size and whole seconds."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError(f"nothing compiled is kept of {path}")


def load_job_file(path: Path) -> Job:
    """The variable `job` of a Python file. Raises RequestError if there is none."""
    if not path.is_file():
        there = "is no file" if path.exists() else "is not there"
        raise RequestError(f"job file {str(path)!r} {there}")
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_AsItIs(name, str(path)))
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise RequestError(f"job file {str(path)!r} is no Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except DayflyError:
        raise
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        file, line = where.filename, where.lineno
        if isinstance(error, SyntaxError):
            file, line = error.filename or file, error.lineno
        raise RequestError(
            f"job file {str(path)!r} fails at {file}:{line}: {in_short(error)}"
        ) from error
    job = getattr(module, "job", None)
    if not isinstance(job, Job):
        found = (
            "has no variable `job`" if job is None else f"has a `job` that is {type(job).__name__}"
        )
        raise RequestError(f"job file {str(path)!r} {found}: write job = dayfly.Job(...)")
    return job


def _module_name(path: Path) -> str:
    """The name of a job file's module: its own, or with `_job` if an installed module has that.

    The installed one is imported now: the job's directory comes first on `sys.path`, so later
    whoever asks for it would get the job file.
    """
    name = path.stem if path.stem.isidentifier() else "job"
    if name in _NOT_TO_IMPORT or name == "__main__":
        return f"{name}_job"
    if name not in sys.modules:
        spec = PathFinder.find_spec(name)
        if name not in sys.stdlib_module_names and (
            spec is None or spec.origin is None or not installed(spec.origin)
        ):
            return name
        with suppress(ImportError):
            importlib.import_module(name)
    before = sys.modules.get(name)
    return f"{name}_job" if before is not None and _installed(before) else name


def ship(
    job: Job,
    code: Path | None,
    store: Store,
    note: Callable[[str], None] = lambda text: None,
    *,
    folder: str = "job",
    run: Path | None = None,
) -> Shipped:
    """Put a job, and the directory `code`, into a folder of the store.

    The run's own directory and the job's data stay out of it, and so does a job file that has the
    name of an installed module, which functions have to find. To be called before the
    job's functions are: what they leave in the job's globals would travel, too.

    Args:
        job: what to send.
        code: directory of the job's file; None: there is none.
        store: the run's.
        note: told how much travels, if that is much.
        folder: in the store.
        run: the run's own directory; None: none that could be below `code`.
    """
    by_value = [module for module in _modules_of(job) if not _installed(module)]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled = _pickled(job)
    except Exception as error:
        raise RequestError(
            f"the job cannot be sent to functions: {in_short(error)}; open files, "
            "locks and connections belong inside its functions"
        ) from error
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)
    store.put(f"{folder}/{_PICKLE}", pickled)
    left_out = set() if run is None else {run.resolve()}
    if not callable(job.data):
        left_out.update(path.resolve() for path in paths_of(job.data))
    for module in by_value:
        file = Path(module.__file__ or "")
        if module.__name__ == f"{file.stem}_job":  # see `_module_name`
            left_out.add(file.resolve())
    zipped = _zipped(code, left_out, note) if code is not None else None
    if zipped is not None:
        store.put(f"{folder}/{_CODE}", zipped)
    return Shipped(_sha256(pickled), None if zipped is None else _sha256(zipped), folder)


def _pickled(job: Job) -> bytes:
    into = io.BytesIO()
    _Pickler(into).dump(job)
    return into.getvalue()


def _code_with_its_file(code: CodeType) -> tuple[Any, ...]:
    """As cloudpickle does it, which since 3.1.3 leaves out in which file the code stands."""
    make, given = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if one == "<dynamic-code>" else one for one in given)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Of functions with the names of their files, so that tracebacks have them."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _code_with_its_file})


def sources(code: Path, run: Path) -> dict[str, bytes]:
    """The Python files below a job's directory, by their paths in it, as `ship` takes them.

    Args:
        run: the run's own directory.
    """
    found = (path for path in _files(code, {run.resolve()}) if path.suffix == ".py")
    return {str(path.relative_to(code)): path.read_bytes() for path in found}


def shipped_sources(shipped: Shipped, store: Store) -> dict[str, bytes]:
    """The same of those that were shipped. Raises DayflyError if they were damaged."""
    assert shipped.code is not None
    zipped = _checked(store, f"{shipped.folder}/{_CODE}", shipped.code)
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}


def take_code(shipped: Shipped, from_store: Store, store: Store) -> None:
    """Puts the code of a shipped job into another store, in the usual folder."""
    store.put(f"job/{_CODE}", from_store.get(f"{shipped.folder}/{_CODE}"))


def receive(shipped: Shipped, store: Store, scratch: Path | None) -> Job:
    """Load a shipped job; its code is unpacked and made importable.

    Args:
        scratch: where to unpack, which becomes the working directory; None: somewhere that goes
            with the process, whose working directory stays.

    Raises:
        DayflyError: if a digest is not the one that was shipped; nothing is loaded then.
    """
    pickle = f"{shipped.folder}/{_PICKLE}"
    pickled = _checked(store, pickle, shipped.job)
    here = Path.cwd()
    if shipped.code is not None:
        folder = (scratch or _private()) / shipped.code
        if not folder.is_dir():
            _unpack(_checked(store, f"{shipped.folder}/{_CODE}", shipped.code), folder)
        sys.path.insert(0, str(folder))
        os.chdir(folder)
    try:
        job = cloudpickle.loads(pickled)
    finally:
        if scratch is None:
            os.chdir(here)
    if not isinstance(job, Job):
        raise DayflyError(f"{pickle} in {store} holds a {type(job).__name__}, not a Job")
    return job


def _checked(store: Store, name: str, digest: str) -> bytes:
    data = store.get(name)
    if _sha256(data) != digest:
        raise DayflyError(
            f"{name} in {store} is not what was shipped: its SHA-256 is {_sha256(data)}, "
            f"not {digest}; it was not loaded"
        )
    return data


def _private() -> Path:
    """A directory that goes with this process: the next session to open removes what a kill -9
    leaves of it."""
    session = Session.open()
    atexit.register(session.close)
    return session.root


def _unpack(zipped: bytes, folder: Path) -> None:
    """Unpack beside and rename: of several functions that unpack at once, one wins."""
    beside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    beside.mkdir(parents=True)  # also where there is nothing to unpack
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        archive.extractall(beside)
    try:
        beside.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _zipped(directory: Path, left_out: Set[Path], note: Callable[[str], None]) -> bytes:
    buffer = io.BytesIO()
    total = count = 0
    largest = (0, "")
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for count, path in enumerate(_files(directory, left_out), 1):
            size = path.stat().st_size
            total += size
            largest = max(largest, (size, str(path)))
            if total > LARGEST_CODE_BYTES or count > _MOST_FILES:
                raise RequestError(
                    f"the job's directory {directory} travels to the functions, but it holds more "
                    f"than {LARGEST_CODE_BYTES >> 20} MiB or {_MOST_FILES} files (such as "
                    f"{largest[1]}): put the job in a directory of its own"
                )
            # A fixed date, so that the same files have the same digest.
            info = zipfile.ZipInfo(str(path.relative_to(directory)), (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    if count >= _MANY_FILES:
        note(
            f"{count} files ({total / 2**20:.1f} MiB) of {directory} travel to the functions, as "
            "the job's file is there: put it into a directory of its own if they need fewer"
        )
    return buffer.getvalue()


def _files(directory: Path, left_out: Set[Path]) -> Iterator[Path]:
    """Files below, without hidden ones, virtual environments, runs and what is `left_out`."""
    for folder, folders, files in os.walk(directory):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _NOT_SHIPPED
            and not (here / name / "pyvenv.cfg").exists()
            and not (here / name / "run.json").exists()
            and (here / name).resolve() not in left_out
        )
        for name in sorted(files):
            path = here / name
            if not name.startswith(".") and path.is_file() and path.resolve() not in left_out:
                yield path


def _modules_of(job: Job) -> list[ModuleType]:
    parts: list[Any] = [job.model, job.data, job.loss, job.optimizer, job.scheduler, job.transform]
    parts += [job.eval_transform, job.step, job.infer, *job.metrics.values()]
    each = [one for x in parts for one in (x.values() if isinstance(x, Mapping) else (x,))]
    functions: list[Callable[..., Any]] = [part for part in each if callable(part)]
    names = {getattr(function, "__module__", None) for function in functions}
    names |= {type(callback).__module__ for callback in job.callbacks}
    return [sys.modules[name] for name in sorted(n for n in names if n in sys.modules)]


def _installed(module: ModuleType) -> bool:
    """Whether functions have the module anyway: the standard library and installed packages."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or module.__name__.partition(".")[0] == "dayfly":
        return True  # cloudpickle sends __main__ by value itself
    return file is None or installed(file)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
