"""What every form of data files promises: it is recognised, checked and read as arrays of samples.

    path --recognised by--> DataSource --read--> Samples --placed once--> store --rows--> workers

A source is a frozen description; it reads nothing until `read` is called, in the process of the
command, before anything starts. `read` looks at all of the files, so that what is wrong in them is
refused there and then. What it returns may be larger than memory: arrays mapped from a temporary
file without a name, and files that are read when they are needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dayfly.errors import RequestError
from dayfly.registry import Registry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dayfly.data.encoded import Encoded

    Array = NDArray[Any] | Encoded
    Arrays = Mapping[str, Array]
else:
    Array = Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, for people.

    Args:
        name: of the column.
        type: what it holds, such as "whole numbers" or "text, 3 different".
        role: what it is used for: "x", "y", or "" if it is left out.
    """

    name: str
    type: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Samples:
    """What files hold, as a job takes it.

    Args:
        arrays: x_train, y_train and, if the files have them, x_val and y_val; by name.
        classes: names of the classes, in the order of their numbers from 0; empty: none are known.
        columns: of a table; empty: it is none.
        notes: sentences on how the files were read, such as the order of the vocabulary.
        vocabulary: words in the order of their numbers; empty: the data are no text.
    """

    arrays: Arrays
    classes: Sequence[str] = ()
    columns: Sequence[Column] = ()
    notes: Sequence[str] = ()
    vocabulary: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class DataSource(ABC):
    """Files of one form, and how to read them. A subclass has its options as fields.

    Args:
        path: the file or directory; `~` is the home directory.
    """

    #: Name of the form, as in `dayfly.data`.
    name: ClassVar[str]
    #: The form in words, for people.
    form: ClassVar[str]

    path: str | PathLike[str] = field(kw_only=False)

    @property
    def expanded_path(self) -> Path:
        """The path, with the home directory for `~`."""
        return Path(fspath(self.path)).expanduser()

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a path, which exists, has this form: by names and first bytes alone."""

    @abstractmethod
    def read(self) -> Samples:
        """Returns the samples.

        Raises:
            RequestError: names the file, the place in it and the remedy.
        """

    def look(self) -> Sequence[Column]:
        """Returns the columns, for people, also if `read` would refuse them; () if it is no table.

        Raises:
            RequestError: the file cannot be read.
        """
        return ()

    def whole(self, name: str, least: int) -> None:
        """Checks that an option is a whole number.

        Args:
            name: of the field.
            least: smallest number.

        Raises:
            RequestError: it is none, or is smaller.
        """
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise RequestError(f"{name}={value!r}: give a whole number from {least}")

    def paths(self) -> Sequence[Path]:
        """Files and directories of the data, which do not travel with the job's code."""
        others = getattr(self, "validation", None)
        return [
            self.expanded_path,
            *([Path(fspath(others)).expanduser()] if others is not None else []),
        ]

    def __str__(self) -> str:
        """As it is written in a job, such as `dayfly.data.csv('x.csv', target='y')`."""
        given = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if one.name != "path" and getattr(self, one.name) != one.default
        ]
        return f"dayfly.data.{self.name}({', '.join([repr(fspath(self.path)), *given])})"


#: Where the modules below are. No module has the name of its form, such as csv: it would hide
#: the class `dayfly.data.csv`.
_HERE = "dayfly.data"
#: Forms of data files by name, in the order in which they are asked whether a path is theirs.
READERS: Registry[type[DataSource]] = Registry(
    "form of data",
    "dayfly.readers",
    {
        "arrays": f"{_HERE}.npy_arrays:ArrayFiles",
        "csv": f"{_HERE}.csv_file:CSVFile",
        "parquet": f"{_HERE}.parquet_file:ParquetFile",
        "mnist": f"{_HERE}.idx:IDXFiles",
        "cifar": f"{_HERE}.cifar_records:CIFARFiles",
        "wikitext": f"{_HERE}.wikitext_tokens:WikiText",
        "glue": f"{_HERE}.glue_tsv:GLUETask",
        "squad": f"{_HERE}.squad_json:SQuADFiles",
        "huggingface": f"{_HERE}.arrow_folder:HuggingFaceFolder",
        "webdataset": f"{_HERE}.tar_shards:TarShards",
        "images": f"{_HERE}.image_folder:ImageFolder",
        "libsvm": f"{_HERE}.libsvm_text:LIBSVMFile",
    },
)


def samples_of(data: Any) -> Samples:
    """Returns the samples that a job's `data` names: built in, a source, or a path."""
    from dayfly.data.npy_arrays import BUILTIN

    if not isinstance(data, DataSource) and str(data) in BUILTIN:
        return Samples(BUILTIN[str(data)]())
    return source_of(data).read()


def paths_of(data: Any) -> Sequence[Path]:
    """Returns the files and directories of a job's `data` that is no function."""
    if isinstance(data, DataSource):
        return data.paths()
    return [Path(fspath(data)).expanduser()]


def source_of(data: Any) -> DataSource:
    """Returns the source that a job's `data` names.

    Args:
        data: a source, or a path.

    Raises:
        RequestError: nothing is there, or no reader knows its form.
    """
    if isinstance(data, DataSource):
        return data
    path = Path(fspath(data)).expanduser()
    if not path.exists():
        raise RequestError(
            f'data {str(data)!r} is not there (looked in {Path.cwd()}): give "digits", or a file '
            f"or directory of one of these forms: {', '.join(READERS)}"
        )
    for reader in READERS.values():
        if reader.recognises(path):
            return reader(data)
    raise RequestError(
        f"data {str(data)!r} is of no form that is known by its looks: name the form, such as "
        f"data=dayfly.data.csv({str(data)!r}); forms are {', '.join(READERS)}"
    )
