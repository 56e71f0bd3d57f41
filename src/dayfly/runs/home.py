"""Where a run is kept: in its directory, or in a store, of which the directory is a copy.

--store s3://bucket/runs    s3://bucket/runs/<run id>/    the run: all that a resume needs
--run-dir DIR               DIR/                          run.json, results, events, logs
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dayfly.dataclass_json import Name, read
from dayfly.errors import RequestError, RunFailed
from dayfly.life.leadership import Deposed, Leadership
from dayfly.life.led_store import CHANGING, LedStore
from dayfly.life.platforms.base import Logs
from dayfly.runs import kept_files
from dayfly.runs.directory import PLAN, RECORD, being_prepared, fresh_directory, holder, locked
from dayfly.runs.event_segments import as_files
from dayfly.runs.kept_files import pieces
from dayfly.runs.record import REMEDY, RunRecord, kept_in, read_record, record_of
from dayfly.runs.whole_files import replacing
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import ObjectMissing, Pieces, Store, StoreError
from dayfly.wire.stores.files import FileStore

#: Where runs lie that have no place of their own.
USUAL = Path("runs")
#: Files of weights in a run's directory: the last step's, their moving average of a job with `ema`,
#: the best epoch's, and below a folder those of other epochs that were kept.
WEIGHTS, AVERAGED = "weights.safetensors", "ema.safetensors"
BEST, KEPT = "best.safetensors", "kept"
_KEPT = re.compile(rf"{KEPT}/\w[\w.-]{{0,99}}\.safetensors", re.ASCII)


@dataclass(frozen=True, slots=True)
class Home:
    """A run's store, and by whom it is led.

    Attributes:
        store: for the run's coordinator.
        directory: of the run.
        leadership: of this process; None: the run is kept in its directory, whose lock says who
            runs it.
    """

    store: Store
    directory: Path
    leadership: Leadership | None = None

    def check(self) -> None:
        """Raises Deposed if another coordinator leads the run by now."""
        if self.leadership is not None:
            self.leadership.check()

    def keep(self, name: str) -> None:
        """Puts a file of the directory into the store, if that is another place."""
        if self.leadership is not None:
            file = self.directory / name
            self.store.put(name, Pieces(file.stat().st_size, lambda: pieces(file)))

    def keep_files(self, folder: str) -> None:
        """Puts a script's files into the store, if that is another place. No worker may run."""
        if self.leadership is not None:
            kept_files.keep(self.store, self.directory / folder)

    def keep_logs(self, logs: Logs, functions: Iterable[str], generation: int) -> None:
        """Puts what functions printed into the store, if that is another place than the logs'."""
        if self.leadership is not None:
            for function in functions:
                if text := logs.log(function).text:
                    self.store.put(f"logs/{generation:06d}/{function}", text)


@contextmanager
def led(url: str | None, directory: Path, note: Callable[[str], None]) -> Iterator[Home]:
    """The home of a run, for as long as this process leads it.

    Args:
        url: of the run in a store; None: it is kept in its directory.
        directory: of the run; this process holds its lock.
        note: told what there is to wait for.

    Raises:
        RequestError: another coordinator leads the run.
        RunFailed: in the end, if another one came to lead it meanwhile.
    """
    if url is None:
        yield Home(FileStore(directory), directory)
        return
    store = open_store(url)
    _refuse_same(store, directory)
    with ExitStack() as stack:
        try:
            try:
                leadership = stack.enter_context(Leadership.take(store, note=note))
                led_store = LedStore(store, leadership, FileStore(directory))
            except StoreError as error:
                raise RequestError(f"--store {url}: {error}") from error
            yield Home(led_store, directory, leadership)
        except Deposed as lost:
            raise RunFailed(str(lost)) from lost


@contextmanager
def fresh(url: str | None, directory: Path, note: Callable[[str], None]) -> Iterator[Home]:
    """As `led`, of a run that is new; what is no run in the end leaves nothing in the store."""
    with led(url, directory, note) as home:
        if url is not None:
            note(f"the run is kept in {url}")
        try:
            yield home
        except BaseException:
            if url is not None:
                with suppress(StoreError):  # what it was raised for is told
                    if home.store.stat(RECORD) is None:
                        open_store(url).clear()
            raise


def place_in(store: str | None, run_id: str) -> str | None:
    """The URL of a run in a store of runs. Raises RequestError for what is no store's."""
    return None if store is None else open_store(f"{store.rstrip('/')}/{run_id}").url


def home_of(record: RunRecord, directory: Path) -> Store:
    """The store of a run, for who only looks at it.

    Args:
        directory: of the run.
    """
    return FileStore(directory) if record.store is None else open_store(record.store)


def local_directory(run: str | Path, directory: Path | None = None) -> Path:
    """Returns the directory of a run; of one in a store, that of a copy, which is made.

    A copy that is there is brought up to date with its store, unless a coordinator of this machine
    writes there.

    Args:
        run: a directory, or a URL such as `s3://bucket/runs/digits-1`.
        directory: for the copy; None: `runs/<run id>`.

    Raises:
        RequestError: there is no run, or the directory holds something else.
    """
    if isinstance(run, Path) or "://" not in run:
        if directory is not None:
            raise RequestError(
                "--resume goes on with what is in the run's directory: leave out --run-dir"
            )
        return _up_to_date(Path(run).expanduser().absolute())
    store = open_store(run.rstrip("/"))
    run_id = read(_Named, record_in(store), f"{store}/{RECORD}", remedy=REMEDY).run_id
    directory = (directory or USUAL / run_id).expanduser().absolute()
    _refuse_same(store, directory)
    if not (directory / RECORD).exists():
        with fresh_directory(directory):
            copy(store, directory)
        return directory
    known = read_record(directory)
    if known.get("run_id") != run_id or known.get("store") is None:
        raise RequestError(
            f"{str(directory)!r} holds another run than {store}: name another directory by "
            "--run-dir"
        )
    return _up_to_date(directory, store)


def _up_to_date(directory: Path, store: Store | None = None) -> Path:
    """Of a copy of a run in a store: as that is now, unless a coordinator here writes there.

    Args:
        directory: the copy.
        store: None: where the run was kept when the copy was made.
    """
    if (directory / RECORD).exists() and holder(directory) is None:
        url = read_record(directory).get("store")
        if store is None and isinstance(url, str):
            store = open_store(url)
        if store is not None:
            with locked(directory):
                copy(store, directory)
    return directory


def copy(store: Store, directory: Path) -> None:
    """Brings a run's directory up to date with its store: events, results, and `run.json` last.

    A script's files here stay if they are of the generation that the store knows, and so newer.
    Raises RequestError if the directory cannot be written, or the store not be read.
    """
    with being_prepared(directory):
        local = FileStore(directory)
        if not (directory / RECORD).exists() or _generation(local) != _generation(store):
            kept_files.take(store, directory / "files")
        as_files(store, directory / "events")
        record = kept_in(store.get(RECORD), store.url, f"{store}/{RECORD}")
        known = (directory / RECORD).exists() and record.rstrip() == local.get(RECORD).rstrip()
        names = (info.name for info in store.list(KEPT))
        for name in (WEIGHTS, AVERAGED, BEST, *(one for one in names if _KEPT.fullmatch(one))):
            if not (known and (directory / name).exists()):
                (directory / name).parent.mkdir(exist_ok=True)
                with suppress(ObjectMissing), replacing(directory / name) as beside:
                    kept_files.download(store, name, beside)
        for name in (PLAN, *CHANGING):
            if "/" not in name and name != RECORD:
                try:
                    local.put(name, store.get(name))
                except ObjectMissing:
                    local.delete([name])
        local.put(RECORD, record)


def _refuse_same(store: Store, directory: Path) -> None:
    """Raises RequestError for a copy in the very place of the run: each would write over both."""
    if isinstance(store, FileStore) and store.root.resolve() == directory.resolve():
        raise RequestError(
            f"{store.url} keeps the run in {str(directory)!r} itself, where its copy was to be: "
            "name another directory by --run-dir, or work in another one"
        )


def _generation(store: Store) -> object:
    return record_in(store).get("generation")


def record_in(store: Store) -> dict[str, Any]:
    """What the `run.json` in a store says. Raises RequestError if there is none."""
    try:
        return record_of(store.get(RECORD), f"{store}/{RECORD}")
    except ObjectMissing:
        raise RequestError(
            f"{str(store)!r} holds no run: give the URL of one, as dayfly train --store says it"
        ) from None


@dataclass(frozen=True)
class _Named:
    """What of a `run.json` becomes the name of a directory."""

    ignores_unknown: ClassVar[bool] = True

    run_id: Name
