"""Skipstone: a data-skipping engine for Parquet lakes.

>>> import skipstone as sk
>>> sk.parse("user_id = 42")
Predicate("user_id = 42")
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipstone.api import *  # noqa: F403

    # Editors take these for the packages of the same names otherwise.
    from skipstone.api import predicate as predicate
    from skipstone.api import prune as prune
    from skipstone.api import spark as spark

__version__ = "0.2.0.dev0"


class _Package(types.ModuleType):
    """Loads the names of :mod:`skipstone.api` on first use, so that importing the package costs nothing.

    The packages ``predicate``, ``prune`` and ``spark`` share names with public functions; those stand here.
    """

    _functions = frozenset({"predicate", "prune", "spark"})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # Not ``from skipstone import api``: that would ask this very method for ``api``.
        api = importlib.import_module("skipstone.api")
        if name == "__all__":
            return api.__all__
        if name not in api.__all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(api, name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in self._functions and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *self.__dict__})


sys.modules[__name__].__class__ = _Package
