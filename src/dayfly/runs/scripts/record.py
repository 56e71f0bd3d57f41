"""A script's run: its settings, which file it is, `run.json`, and what came of it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import ClassVar, Self

from dayfly.dataclass_json import PathText
from dayfly.errors import RequestError
from dayfly.runs.directory import RECORD
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.record import SCRIPT, RunRecord
from dayfly.runs.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings(FunctionSettings):
    """Options of a run of a script, beside those of its functions. Raises RequestError as they do.

    Attributes:
        max_restarts: how often all workers start again after one died; kills from outside and
            lifetimes that end are not counted.
        log_budget_mib: None: a quarter of the free space for files, 1 GiB elsewhere.
    """

    max_restarts: int = 3

    def __post_init__(self) -> None:
        FunctionSettings.__post_init__(self)  # super() does not know a class with slots
        if self.max_restarts < 0:
            raise RequestError(f"--max-restarts {self.max_restarts}: give 0 or more")


def digest_of(source: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(source).hexdigest()


@dataclass(frozen=True, slots=True)
class Script:
    """A script that functions run.

    Attributes:
        file: absolute path.
        module: full name of the module, if it was named as one; None: it was named as a file.
        digest: of the file.
    """

    file: PathText
    module: str | None
    digest: str

    @classmethod
    def find(cls, what: str, *, module: bool, cwd: Path, path: Sequence[str] | None = None) -> Self:
        """The script of a name: of a file, or of a module as of `python -m`; it is not run.

        Args:
            path: where modules are searched, after the current directory; None: sys.path.

        Raises:
            RequestError: if there is none, or it is no Python.
        """
        searched = [str(cwd), *(sys.path if path is None else path)]
        file, name = _module(what, searched) if module else (cwd / what, None)
        if file.is_dir():
            raise RequestError(
                f"script {what!r} is a directory: name a file in it, or -m and a package"
            )
        try:
            source = file.read_bytes()
            compile(source, str(file), "exec", dont_inherit=True)
        except FileNotFoundError:
            raise RequestError(f"script {what!r} is not there: {file}") from None
        except OSError as error:
            raise RequestError(f"script {what!r} cannot be read: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"{file}, line {line}" if line else str(file)
            text = error.msg if isinstance(error, SyntaxError) else error
            raise RequestError(f"script {what!r} is no Python: {text} ({where})") from error
        return cls(str(file.absolute()), name, digest_of(source))

    def changed(self) -> str | None:
        """Says it if the file is another one than it was when the script was found."""
        try:
            same = digest_of(Path(self.file).read_bytes()) == self.digest
        except OSError as error:
            return f"{self.file} cannot be read any more: {error.strerror}"
        if same:
            return None
        return (
            f"{self.file} has changed since the run began: put it back and go on with --resume, "
            "or begin a new run"
        )


def _module(name: str, path: Sequence[str]) -> tuple[Path, str]:
    """Where a module is, or its package's __main__, and its full name; nothing is imported."""
    spec = _spec(name, path)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None:
        raise RequestError(f"-m {name}: there is no such module in the current directory or beyond")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise RequestError(f"-m {name}: the module is not written in Python: {spec.origin}")
    return Path(spec.origin), name


def _spec(name: str, path: Sequence[str]) -> ModuleSpec | None:
    spec, places, full = None, list(path), ""
    for part in name.split("."):
        full = f"{full}.{part}" if full else part
        spec = PathFinder.find_spec(full, places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRecord(RunRecord):
    """A script's.

    Attributes:
        deaths: in how many of the generations before a worker died.
    """

    kind: ClassVar[str] = SCRIPT

    settings: ScriptSettings
    script: Script
    args: tuple[str, ...]
    cwd: PathText
    deaths: int = 0

    def started_again(self, *, died: bool) -> Self:
        """The record of the next generation of the same life."""
        return replace(self, generation=self.generation + 1, deaths=self.deaths + died)


#: Where a script keeps what later generations find again, in the run's directory.
FILES = "files"


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A script's run that is over.

    Attributes:
        directory: the run's.
        result: what came of it.
        stopped_by: number of the signal that ended it early; None: none did.
        lives: how often all workers were started.
        changed: whether the script has changed since.
        sure_to_fail: whether a resume would only fail again.
    """

    directory: Path
    result: Result
    stopped_by: int | None = None
    lives: int = 1
    changed: bool = False
    sure_to_fail: bool = False

    @property
    def to_go_on(self) -> str | None:
        """What to type to go on with a run that is not done; None where that is of no use."""
        known = (self.directory / RECORD).is_file()
        if self.changed or self.sure_to_fail or not known:
            return None
        saved = any(path.is_file() for path in (self.directory / FILES).rglob("*"))
        looped = (self.directory / "checkpoint" / "latest.json").is_file()
        how = "to go on from the script's own checkpoint" if saved else "to start it again"
        if looped:
            how = "to go on from the checkpoint of its loop"
        return f"{how}: dayfly run --resume {self.directory}"
