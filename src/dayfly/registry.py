"""Implementations by name: built-in ones, and those that other packages bring as entry points."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar, cast

from dayfly.errors import RequestError, in_short

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """A read-only mapping from names to implementations, each imported at its first use.

    Args:
        what: the kind of thing, in errors, such as "platform".
        group: of entry points of other packages, such as "dayfly.platforms". A name that is
            built in stays dayfly's own.
        built_in: by name, the thing itself or where it is: `package.module:attribute`.
    """

    def __init__(self, what: str, group: str, built_in: Mapping[str, T | str]) -> None:
        self._what = what
        self._group = group
        self._built_in = built_in

    def __getitem__(self, name: str) -> T:
        """Raises KeyError, and RequestError if what another package brings cannot be imported."""
        if name in self._built_in:
            found = self._built_in[name]
            if isinstance(found, str):
                module, _, attribute = found.partition(":")
                return cast(T, attrgetter(attribute)(import_module(module)))
            return found
        point = self._others[name]
        try:
            return cast(T, point.load())
        except Exception as error:  # of another package's code
            raise RequestError(
                f"{self._what} {name!r}, which is {point.value}, cannot be imported: "
                f"{in_short(error)}"
            ) from error

    @property
    def built_in(self) -> Collection[str]:
        """The names of dayfly's own."""
        return self._built_in.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._others

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from self._others

    def __len__(self) -> int:
        return len(self._built_in) + len(self._others)

    def check(self, name: str, option: str | None = None) -> None:
        """Checks that a name is known; nothing is imported.

        Args:
            name: asked for.
            option: by which it was given, such as `--collective`; None: what it names.

        Raises:
            RequestError: it is not; with the names that there are.

        Examples:
            >>> from dayfly.life.platforms.base import PLATFORMS
            >>> PLATFORMS.check("lokal")
            Traceback (most recent call last):
            ...
            dayfly.errors.RequestError: platform 'lokal' is not known: give one of local
        """
        if name not in self:
            known = ", ".join(self)
            remedy = f"give one of {known}" if known else "install the package that brings it"
            raise RequestError(f"{option or self._what} {name!r} is not known: {remedy}")

    @cached_property
    def _others(self) -> Mapping[str, EntryPoint]:
        from importlib.metadata import entry_points  # 20 ms, which built-in names do without

        found = entry_points(group=self._group)
        return {point.name: point for point in found if point.name not in self._built_in}
