"""Options of scans. No option changes an answer, only how it is computed."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from skipstone.core.plain import as_bytes
from skipstone.errors import UsageError
from skipstone.prune.survey import PruneOptions

Materialise = Literal["auto", "late", "one-pass"]
Route = Literal["auto", "slice", "pyarrow"]
_CHOICES = {"materialise": get_args(Materialise), "route": get_args(Route)}


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of planning and reading; [Lake.scan][skipstone.Lake.scan] also accepts each field as a keyword.

    Attributes:
        skipping: Use metadata to skip data. If False, every row is read and tested.
        index: Use the lake's index. If False, every footer is opened.
        strict: Raise an error for a partition of a table that can't be judged. By default it is kept.
        page_index: Use page indexes.
        bloom_filter: Use bloom filters.
        dictionary: Read dictionary pages of columns that are fully dictionary-encoded, to skip row groups.
        case_sensitive: Whether column names are case-sensitive.
        materialise: ``"late"`` reads the predicate's columns first and other columns only where rows match;
            ``"one-pass"`` reads all columns together; ``"auto"`` chooses by cost.
        route: ``"slice"`` decodes page slices; ``"pyarrow"`` reads entire row groups; ``"auto"`` chooses by
            cost.
        threads: Number of decoding threads. The default is one per core, and more for object stores.
        batch_rows: Maximum number of rows in a batch.
        memory: Approximate limit, in bytes, for decoded batches that wait for the consumer.
        checksums: Verify the checksums of pages where the writer wrote them.

    Examples:
        >>> import skipstone as sk
        >>> no_skipping = sk.ScanOptions(skipping=False, index=False)
        >>> sk.open("events").scan("event_id = 7", options=no_skipping, threads=1).count()
        1
    """

    skipping: bool = True
    index: bool = True
    strict: bool = False
    page_index: bool = True
    bloom_filter: bool = True
    dictionary: bool = False
    case_sensitive: bool = True
    materialise: Materialise = "auto"
    route: Route = "auto"
    threads: int | None = None
    batch_rows: int = 65_536
    memory: int = 192 * 1024 * 1024
    checksums: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(
                    f"unknown {name} {getattr(self, name)!r}", hint=f"use one of {', '.join(choices)}"
                )
        for name, value in (
            ("threads", self.threads),
            ("batch_rows", self.batch_rows),
            ("memory", self.memory),
        ):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UsageError(f"{name} must be a positive integer, got {value!r}")

    @property
    def prune(self) -> PruneOptions:
        """The options of the cascade."""
        return _prune_options(self.page_index, self.bloom_filter, self.dictionary, self.case_sensitive)


@functools.cache
def _prune_options(
    page_index: bool, bloom_filter: bool, dictionary: bool, case_sensitive: bool
) -> PruneOptions:
    return PruneOptions(page_index, bloom_filter, dictionary, case_sensitive=case_sensitive)


def scan_options(options: ScanOptions | None, *values: object) -> ScanOptions:
    """Return ``options``, or the defaults, with the values of its fields that are not None."""
    if options is not None and not isinstance(options, ScanOptions):
        raise UsageError(
            f"options must be a ScanOptions, got {options!r}",
            hint="pass sk.ScanOptions(...), or its fields as keywords",
        )
    if values == _UNCHANGED and options is None:
        return DEFAULT
    try:
        return _cached(options or DEFAULT, *values)
    except TypeError:
        # A value that can't be hashed is checked, too.
        return _changed(options or DEFAULT, *values)


def _changed(options: ScanOptions, *values: object) -> ScanOptions:
    changes = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
    if isinstance(held := changes.get("memory"), str):
        changes["memory"] = as_bytes(held, "memory")
    return replace(options, **changes)  # type: ignore[arg-type]


# One object for equal options. Typed, since 2 is a number of threads, and 2.0 is not.
_cached = functools.lru_cache(maxsize=256, typed=True)(_changed)


DEFAULT = ScanOptions()
_NAMES = tuple(field.name for field in fields(ScanOptions))
_UNCHANGED = (None,) * len(_NAMES)


def explain_options(chosen: bool | str, format: str, name: str = "analyze") -> tuple[bool, str]:
    """Check the arguments of ``explain``, whose only argument may be a format."""
    if isinstance(chosen, str):
        return explain_options(False, chosen, name)
    if format not in ("text", "json", "html"):
        raise UsageError(f"unknown format {format!r}", hint="use text, json or html")
    if not isinstance(chosen, bool):
        raise UsageError(f"{name}={chosen!r} is not a boolean", hint="use True or False")
    return chosen, format
