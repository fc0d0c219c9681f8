"""What a caller may switch on a scan. No switch changes an answer, only how it is found."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from skipstone.errors import UsageError
from skipstone.prune.survey import PruneOptions

Materialise = Literal["auto", "late", "one-pass"]
Route = Literal["auto", "slice", "pyarrow"]
_CHOICES = {"materialise": get_args(Materialise), "route": get_args(Route)}


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Switches of planning and reading."""

    skipping: bool = True
    """Whether metadata may drop anything; without it every row is read and tested."""
    index: bool = True
    """Whether the lake's index is asked; without it every footer is opened."""
    strict: bool = False
    """Whether a partition that can't be judged is an error, rather than kept to be on the safe side."""
    page_index: bool = True
    bloom_filter: bool = True
    dictionary: bool = False
    case_sensitive: bool = True
    materialise: Materialise = "auto"
    """"late" reads the predicate's columns first and the others only where rows match."""
    route: Route = "auto"
    """"slice" decodes page slices; "pyarrow" reads whole row groups with pyarrow's own reader."""
    threads: int | None = None
    """Pieces decoded side by side; by default one per core, and more where the store is far away."""
    batch_rows: int = 65_536
    """The most rows of a batch."""
    memory: int = 192 * 1024 * 1024
    """Decoded bytes that may wait for the consumer, about."""
    checksums: bool = False
    """Whether to verify the checksums of pages; not every writer writes them."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"{name}={getattr(self, name)!r}", hint=f"give one of {', '.join(choices)}")
        for name, value in (
            ("threads", self.threads),
            ("batch_rows", self.batch_rows),
            ("memory", self.memory),
        ):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UsageError(f"{name}={value!r}", hint="give a positive number")

    @property
    def prune(self) -> PruneOptions:
        """The part the cascade takes."""
        return _prune_options(self.page_index, self.bloom_filter, self.dictionary, self.case_sensitive)


@functools.cache
def _prune_options(
    page_index: bool, bloom_filter: bool, dictionary: bool, case_sensitive: bool
) -> PruneOptions:
    return PruneOptions(page_index, bloom_filter, dictionary, case_sensitive=case_sensitive)


def scan_options(options: ScanOptions | None, switches: dict[str, Any]) -> ScanOptions:
    """``options`` with some fields changed by name."""
    if options is not None and not isinstance(options, ScanOptions):
        raise UsageError(f"options={options!r}", hint="give sk.ScanOptions(...), or its fields by name")
    if not switches:
        return options or DEFAULT
    known = [field.name for field in fields(ScanOptions)]
    unknown = sorted(switches.keys() - set(known))
    if unknown:
        raise UsageError(f"there is no option {', '.join(unknown)}", hint=f"options are {', '.join(known)}")
    return replace(options or DEFAULT, **switches)


DEFAULT = ScanOptions()
