"""A store that can be stopped at every request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from skipstone.store.store import ListedFile, Store

READS = ("list_prefix", "list_directories", "list_files", "list", "open")
CHANGES = ("write", "delete", "move", "clear")


@dataclass
class SteppedStore:
    """Any store; ``before`` and ``after`` are called with each step, and can raise."""

    store: Store
    before: Callable[[str, tuple[Any, ...]], None] = lambda _name, _args: None
    after: Callable[[str, tuple[Any, ...]], None] = lambda _name, _args: None
    _lock: Any = field(default_factory=threading.RLock)

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def local(self) -> bool:
        return self.store.local

    def path(self, key: str) -> str:
        return self.store.path(key)

    def parent(self) -> Any:
        return None

    def child(self, key: str) -> SteppedStore:
        return SteppedStore(self.store.child(key), self.before, self.after, self._lock)

    def list_prefix(self, prefix: str) -> Any:
        return self._step("list_prefix", prefix)

    def list_directories(self) -> Any:
        return self._step("list_directories")

    def list_files(self) -> Any:
        return self._step("list_files")

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Any:
        return self._step("open", key, version=version, size=size)

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        self._step("write", key, [bytes(part) for part in parts], exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        self._step("delete", list(keys))

    def move(self, key: str, to: str) -> None:
        self._step("move", key, to)

    def clear(self, prefix: str) -> None:
        self._step("clear", prefix)

    def list(self) -> list[ListedFile]:
        """Folder by folder, as a store's pages come: never all at one time."""
        files = self.list_files()
        for folder in self.list_directories():
            files += self.list_prefix(folder)
        return sorted(files, key=lambda entry: entry.key)

    def _step(self, name: str, *args: Any, **choice: Any) -> Any:
        # One after the other, so that the n-th is the same thing every time.
        with self._lock:
            self.before(name, args)
            done = getattr(self.store, name)(*args, **choice)
            self.after(name, args)
            return done


@dataclass
class Recorder:
    """Records changes of a store, to repeat them elsewhere step by step."""

    steps: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if name in CHANGES:
            self.steps.append((name, args))


def replay(store: Store, step: tuple[str, tuple[Any, ...]]) -> None:
    """Do one step again."""
    name, args = step
    getattr(store, name)(*args)
