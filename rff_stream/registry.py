"""What is known by its name: classes of kernels and maps, and the folders of families of maps.

To define the class of a kernel or map is to register it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Generic, TypeVar

T = TypeVar("T")

FAMILY_FOLDERS = [
    "rff_stream.cells",
    "rff_stream.grid",
    "rff_stream.choice",
    "rff_stream.level_means",
    "rff_stream.trend",
    "rff_stream.whole",
]
"""Packages of the families of maps, asked in this order: the only place that names them. A folder
of another package is inserted before the last, which takes every map that no other does."""


def family_modules(part: str) -> list[ModuleType]:
    """The module of this name in each folder of a family that has one: "map", "family"."""
    names = [f"{folder}.{part}" for folder in FAMILY_FOLDERS]
    return [importlib.import_module(name) for name in names if _exists(name)]


@functools.cache  # find_spec takes Python's lock of all imports, and an interrupt there keeps it
def _exists(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@functools.cache
def snake_case(name: str) -> str:
    """The name of a class in small letters: "RationalQuadratic" is "rational_quadratic"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Registry(Generic[T]):
    """The concrete subclasses of a base, which adds each of them when it is defined.

    A base calls :meth:`add` from its ``__init_subclass__``. Classes with a name that starts with
    an underscore, and classes with abstract methods, are parts of others: they are not listed.

    Examples
    --------
    >>> registry = Registry("colour")
    >>> class Colour:
    ...     def __init_subclass__(cls):
    ...         registry.add(cls)
    ...
    ...     @classmethod
    ...     def short_name(cls):
    ...         return snake_case(cls.__name__)
    >>> class DarkBlue(Colour): ...
    >>> list(registry.by_name)
    ['dark_blue']
    """

    def __init__(
        self,
        kind: str,
        choices: Callable[[str, type[T]], Iterable[str]] = lambda name, cls: (),
        complete: Callable[[], object] = lambda: None,
    ) -> None:
        self._kind, self._choices, self._complete = kind, choices, complete
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        """Remember a class. One defined again (a cell that is run twice) replaces the first."""
        self._classes[f"{cls.__module__}.{cls.__qualname__}"] = cls
        self.forget_names()

    def forget_names(self) -> None:
        """Look the names up again: not in :meth:`add`, where a class is not whole yet."""
        for index in ("by_name", "by_choice"):
            vars(self).pop(index, None)

    @cached_property
    def by_name(self) -> Mapping[str, type[T]]:
        """Classes by ``short_name()``, in the order of definition.

        Raises ValueError: when two classes have the same name: a stored spec could mean either.
        """
        self._complete()  # imports what may define more
        named: dict[str, type[T]] = {}
        for cls in self._classes.values():
            if cls.__name__.startswith("_") or inspect.isabstract(cls):
                continue
            name: str = cls.short_name()  # type: ignore[attr-defined]
            if name in named:
                raise ValueError(
                    f"{named[name].__module__}.{named[name].__qualname__} and {cls.__module__}."
                    f"{cls.__qualname__} are both the {self._kind} {name!r}, and a stored model "
                    "must know which. Give one of the classes another name."
                )
            named[name] = cls
        return named

    @cached_property
    def by_choice(self) -> Mapping[str, type[T]]:
        """Classes by the names that a parameter of an estimator takes, as ``choices`` says them."""
        return {
            choice: cls for name, cls in self.by_name.items() for choice in self._choices(name, cls)
        }
