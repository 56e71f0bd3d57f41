"""Finds a platform, a store or a type of GPU: in the built-in data files, under the user's own.

platforms/aws-lambda.toml    stores/s3.toml    gpus/T4.toml    ...

A machine without a GPU (`platforms/vm-*.toml`) is a store, too: a server that is rented by time.
`vm-m5-large:spot` is the same machine, cheaper, which its owner may take away at any moment.

Another package brings a price list as an entry point: its name is what `--prices` takes, its value
where the data file is, a path or what `importlib.resources.files` gives.

    [project.entry-points."dayfly.prices"]
    basement = "my_package:BASEMENT"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from dayfly.catalogue.gpu import GpuFacts
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.prices import FunctionPrices, PriceFigures
from dayfly.catalogue.rows import Row, kinds, read_rows
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.registry import Registry

#: Folder to the rows that its files may have.
_KNOWN: Mapping[str, Mapping[str, str]] = {
    "platforms": kinds(FunctionPlatform) | kinds(PriceFigures),
    "stores": kinds(StoreFacts),
    "gpus": kinds(GpuFacts),
}
#: What one entry of a folder is called.
_ONE_OF = {"platforms": "platform", "stores": "store", "gpus": "GPU"}

#: How platforms that are machines begin.
_MACHINE = "vm-"
#: What follows the name of a machine as a spot machine.
_SPOT = "spot"
#: Rows of a machine, and of the store that it is.
_OF_SERVER = {
    "machine_vcpus": "server_vcpus",
    "memory_max_mib": "server_memory_mib",
    "latency_s": "latency_s",
    "uplink_bytes_per_s": "bytes_per_s",
    "usd_per_machine_hour": "usd_per_server_hour",
    "billing_step_ms": "server_step_s",
    "billing_min_ms": "server_min_s",
}

#: What other packages bring, by folder. A name that is built in stays dayfly's own.
_BROUGHT: Mapping[str, Registry[Traversable]] = {
    "platforms": Registry("price list", "dayfly.prices", {}),
    "stores": Registry("price list of a store", "dayfly.store_prices", {}),
    "gpus": Registry("type of GPU", "dayfly.gpus", {}),
}

#: No data file is larger.
_LARGEST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All platforms, stores and types of GPUs that are known.

    Args:
        own: a directory of the user's, of the same layout, whose rows override the built-in ones.

    Raises:
        RequestError: the directory is not there, or holds something else.
    """

    own: Path | None = None

    def __post_init__(self) -> None:
        if self.own is None:
            return
        if not self.own.is_dir():
            raise RequestError(
                f"the catalogue {str(self.own)!r} is no directory: name one of your own with "
                "--catalogue"
            )
        for path in _seen(self.own):
            folder = path.name in _KNOWN and path.is_dir()
            for file in _seen(path) if folder else [path]:
                if not folder or file.suffix != ".toml":
                    raise RequestError(
                        f"{file} is no part of a catalogue: it has platforms/*.toml, "
                        "stores/*.toml and gpus/*.toml"
                    )

    def platforms(self) -> list[str]:
        """Names of the platforms."""
        return self._names("platforms")

    def spot_machines(self) -> list[str]:
        """Names of machines that can be had as spot machines, each with `:spot`."""
        rows = ("usd_per_spot_hour", "spot_interruptions_per_month")
        found = (name for name in self.platforms() if name.startswith(_MACHINE))
        of = {name: self.rows("platforms", name) for name in found}
        return [f"{name}:{_SPOT}" for name in of if all(row in of[name] for row in rows)]

    def stores(self) -> list[str]:
        """Names of the stores, types of servers included."""
        return sorted({*self._names("stores"), *self._machines()})

    def gpus(self) -> list[str]:
        """Names of the types of GPUs."""
        return self._names("gpus")

    def has_store(self, name: str) -> bool:
        """Whether a name is a store's, or `NAME:COUNT` of servers of a type."""
        return self._is_there("stores", name.partition(":")[0])

    def platform(self, name: str) -> FunctionPlatform:
        """Returns a platform, or a machine as a spot machine.

        Args:
            name: of the catalogue; `vm-m5-large:spot` is a spot machine.

        Raises:
            RequestError: there is none, or a data file is wrong.
        """
        one, colon, kind = name.partition(":")
        rows = self.rows("platforms", one)
        values: dict[str, Any] = {key: row.value for key, row in rows.items()}
        figures = {key: values.pop(key) for key in kinds(PriceFigures) if key in values}
        spot_usd = figures.pop("usd_per_spot_hour", None)
        if not colon:
            values.pop("spot_interruptions_per_month", None)
        elif kind == _SPOT and None not in (spot_usd, values.get("spot_interruptions_per_month")):
            figures["usd_per_machine_hour"] = spot_usd
        else:
            raise RequestError(
                f"the catalogue has no platform {name!r}: it has spot machines, as "
                "vm-m5-large:spot, where there are usd_per_spot_hour and "
                "spot_interruptions_per_month"
            )
        prices = FunctionPrices.of(
            name, PriceFigures(**figures), values.get("gpus"), values.get("gpu_memory_mib")
        )
        facts = self.gpu(values["gpu"]) if values.get("gpu") in self.gpus() else None
        return FunctionPlatform(
            name=name, overridden=_own(rows), prices=prices, gpu_facts=facts, **values
        )

    def gpu(self, name: str) -> GpuFacts:
        """Returns a type of GPU.

        Raises:
            RequestError: there is none, or a data file is wrong.
        """
        rows = self.rows("gpus", name)
        values: dict[str, Any] = {key: row.value for key, row in rows.items()}
        return GpuFacts(name=name, overridden=_own(rows), **values)

    def with_gpu(self, name: str) -> list[str]:
        """Returns names of platforms that give each function a GPU of a type, spot machines too.

        Raises:
            RequestError: the type is not known, or no platform has it.
        """
        self.rows("gpus", name)
        every = [self.platform(one) for one in (*self.platforms(), *self.spot_machines())]
        having = [one.name for one in every if one.gpu == name and (one.gpus or 1) == 1]
        if not having:
            types = sorted({one.gpu for one in every if one.gpu is not None})
            raise RequestError(
                f"--gpu {name}: no platform of the catalogue has one, only {', '.join(types)}: add "
                "yours to platforms/ of a catalogue of your own"
            )
        return having

    def store(self, name: str) -> StoreFacts:
        """Returns a store of the catalogue, which may be several servers of one type.

        Args:
            name: of the catalogue; `vm-m5-large:2` is two servers.

        Raises:
            RequestError: there is none, or a data file is wrong.
        """
        one, colon, count = name.partition(":")
        rows = self.rows("stores", one)
        values: dict[str, Any] = {key: row.value for key, row in rows.items()}
        found = StoreFacts(name=one, overridden=_own(rows), **values)
        if not colon:
            return found
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise RequestError(f"store {name!r}: {count!r} is no number of servers: give {one}:2")
        return found.of_servers(int(count))

    def rows(self, folder: str, name: str) -> dict[str, Row]:
        """Returns the rows of an entry, the user's over the built-in ones.

        Args:
            folder: "platforms", "stores" or "gpus".
            name: of the entry, without `:spot` or a number of servers.

        Raises:
            RequestError: there is no such entry, or a file of it cannot be read or is wrong.
        """
        found: dict[str, Row] = {}
        if not self._is_there(folder, name):
            names = self.stores() if folder == "stores" else self._names(folder)
            raise RequestError(
                f"the catalogue has no {_ONE_OF[folder]} {name!r}: give one of {', '.join(names)}"
            )
        for file, own in self._files(folder, name):
            origin = str(file) if own else f"{folder}/{file.name}"
            try:
                # Paths of files, or within archives, are hashable.
                text = _text(file) if own else _kept_text(file)  # type: ignore[arg-type]
            except (OSError, UnicodeDecodeError) as error:
                raise RequestError(f"{origin} cannot be read: {error}") from error
            found |= _parsed(text, origin, folder, own)
        if folder == "stores" and self._has_file("platforms", name):
            return _server_rows(self.rows("platforms", name)) | found
        return found

    def _machines(self) -> list[str]:
        """Platforms that are machines, those with GPUs left out."""
        return [name for name in self._names("platforms") if self._is_machine(name)]

    def _is_machine(self, platform: str) -> bool:
        """Whether it is one that can be a store's server."""
        return platform.startswith(_MACHINE) and "gpu" not in self.rows("platforms", platform)

    def _is_there(self, folder: str, name: str) -> bool:
        """Whether the catalogue has this entry; files of other entries are not read."""
        if self._has_file(folder, name):
            return True
        of_machine = folder == "stores" and self._has_file("platforms", name)
        return of_machine and self._is_machine(name)

    def _has_file(self, folder: str, name: str) -> bool:
        files = _built_in(folder), self._own_files(folder), _BROUGHT[folder]
        return any(name in one for one in files)

    def _names(self, folder: str) -> list[str]:
        return sorted({*_built_in(folder), *_BROUGHT[folder], *self._own_files(folder)})

    def _files(self, folder: str, name: str) -> Iterator[tuple[Traversable, bool]]:
        """Data files of an entry, and whether they are the user's, which come last."""
        if (built_in := _built_in(folder).get(name)) is not None:
            yield built_in, False
        elif (file := _BROUGHT[folder].get(name)) is not None:
            if not isinstance(file, Traversable):
                raise RequestError(
                    f"price list {name!r} of another package is {type(file).__name__}: it must be "
                    "the path of its data file"
                )
            yield file, False
        if (file := self._own_files(folder).get(name)) is not None:
            yield file, True

    def _own_files(self, folder: str) -> Mapping[str, Traversable]:
        return {} if self.own is None else _data_files(self.own / folder)


@cache
def _built_in(folder: str) -> Mapping[str, Traversable]:
    """Kept, as a choice among plans asks hundreds of times."""
    return _data_files(resources.files(__package__).joinpath(folder))


def _text(file: Traversable) -> str:
    with file.open("rb") as opened:
        return opened.read(_LARGEST_BYTES).decode()


@lru_cache(maxsize=512)
def _kept_text(file: Any) -> str:
    """Of files that come with packages, which do not change: a choice among plans asks often."""
    return _text(file)


def _data_files(folder: Traversable) -> Mapping[str, Traversable]:
    """By the names of their entries."""
    if not folder.is_dir():
        return {}
    return {
        file.name.removesuffix(".toml"): file
        for file in folder.iterdir()
        if file.name.endswith(".toml") and not file.name.startswith(".")
    }


@lru_cache(maxsize=256)
def _parsed(text: str, origin: str, folder: str, own: bool) -> Mapping[str, Row]:
    """By the text itself, so that a file that is changed is read anew."""
    return read_rows(text, origin, _KNOWN[folder], own=own)


def _server_rows(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows of the store that a machine is."""
    found = {}
    for key, row in rows.items():
        if key in _OF_SERVER:
            value = row.value
            if key.endswith("_ms") and isinstance(value, int | float):
                value = value / 1000
            found[_OF_SERVER[key]] = replace(row, value=value)
    return found


def _seen(directory: Path) -> list[Path]:
    """What is in a directory, hidden files apart."""
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))


def _own(rows: Mapping[str, Row]) -> tuple[str, ...]:
    return tuple(sorted(key for key, row in rows.items() if row.own))
