"""Options of a compaction, with the names, defaults and checks of Iceberg's RewriteDataFiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from skipstone.core.plain import as_bytes
from skipstone.errors import UsageError, did_you_mean
from skipstone.iceberg.metadata import integer_property

MIB: Final = 1 << 20
_GIB: Final = 1 << 30
TARGET: Final = "write.target-file-size-bytes"
_MIN_SHARE, _MAX_SHARE = 0.75, 1.8
_MOST_AXES: Final = 8
NO_THRESHOLD: Final = 2**31 - 1

Strategy: TypeAlias = Literal["binpack", "sort", "zorder", "hilbert"]
JobOrder: TypeAlias = Literal["none", "bytes-asc", "bytes-desc", "files-asc", "files-desc"]


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of a compaction; ``table.plan_compaction`` documents them.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> options = table.plan_compaction(strategy="hilbert", sort_by=["ts", "event_id"]).options
        >>> options.strategy, options.min_input_files, options.to_json()["min-input-files"]
        ('hilbert', 5, 5)
    """

    strategy: Strategy = "binpack"
    sort_by: tuple[str, ...] = ()
    target_file_size_bytes: int = 512 * MIB
    min_file_size_bytes: int = int(512 * MIB * _MIN_SHARE)
    max_file_size_bytes: int = int(512 * MIB * _MAX_SHARE)
    min_input_files: int = 5
    max_file_group_size_bytes: int = 100 * _GIB
    rewrite_all: bool = False
    delete_file_threshold: int = NO_THRESHOLD
    delete_ratio_threshold: float = 0.3
    target_spec_id: int | None = None
    rewrite_job_order: JobOrder = "none"
    max_concurrent_file_group_rewrites: int = 5
    partial_progress_enabled: bool = False
    partial_progress_max_commits: int = 10
    use_starting_sequence_number: bool = True
    remove_dangling_deletes: bool = True

    @classmethod
    def of(
        cls, given: Mapping[str, Any], properties: Mapping[str, str], table: str | None = None
    ) -> CompactionOptions:
        """Options from keywords, of which None means the default; the default size is the table's."""
        chosen: dict[str, Any] = {
            name: as_bytes(value, name) if name.endswith("_bytes") else value
            for name, value in given.items()
            if value is not None
        }
        if "target_file_size_bytes" not in chosen:
            size = integer_property(properties, TARGET, 512 * MIB, table=table, least=1)
            chosen["target_file_size_bytes"] = size
        target = chosen["target_file_size_bytes"]
        _check_number("target_file_size_bytes", target, 1)
        chosen.setdefault("min_file_size_bytes", int(target * _MIN_SHARE))
        chosen.setdefault("max_file_size_bytes", max(int(target * _MAX_SHARE), target + 1))
        return cls(**chosen)

    def __post_init__(self) -> None:
        self._check_choices()
        for name, least in _LEAST.items():
            _check_number(name, getattr(self, name), least)
        low, target, high = self.min_file_size_bytes, self.target_file_size_bytes, self.max_file_size_bytes
        if not low < target:
            problem = f"min_file_size_bytes must be less than the target {target}, got {low}"
            raise UsageError(problem, hint="omit min_file_size_bytes for 75 % of the target")
        if not target < high:
            problem = f"max_file_size_bytes must be more than the target {target}, got {high}"
            raise UsageError(problem, hint="omit max_file_size_bytes for 180 % of the target")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                problem = f"{name} must be True or False, got {getattr(self, name)!r}"
                raise UsageError(problem, hint=f"omit {name} for its default")
        if self.target_spec_id is not None:
            _check_number("target_spec_id", self.target_spec_id, 0)
        ratio = self.delete_ratio_threshold
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
            problem = f"delete_ratio_threshold must be above 0 and at most 1, got {ratio!r}"
            raise UsageError(problem, hint="use a fraction such as 0.3")

    def _check_choices(self) -> None:
        for name, kind in (("strategy", Strategy), ("rewrite_job_order", JobOrder)):
            value, known = getattr(self, name), get_args(kind)
            if value not in known:
                hint = did_you_mean(str(value), known, f"use one of {', '.join(known)}")
                raise UsageError(f"unknown {name} {value!r}", hint=hint)
        if self.strategy == "binpack" and self.sort_by:
            raise UsageError("sort_by= does not apply to binpack", hint='use strategy="sort"')
        if self.strategy in ("zorder", "hilbert") and not 1 <= len(self.sort_by) <= _MOST_AXES:
            problem = f"{self.strategy} does not support {len(self.sort_by)} columns"
            raise UsageError(problem, hint=f"name one to {_MOST_AXES} columns in sort_by")

    def to_json(self) -> dict[str, Any]:
        """Return the options under Iceberg's names."""
        return {_java(field.name): getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompactionOptions:
        """Read options under Iceberg's names."""
        names = {_java(field.name): field.name for field in fields(cls)}
        _check_names(data, names)
        given = {names[name]: value for name, value in data.items()}
        return cls(**{**given, "sort_by": tuple(given.get("sort_by", ()))})


_LEAST: Final = {
    "target_file_size_bytes": 1,
    "min_file_size_bytes": 0,
    "max_file_size_bytes": 1,
    "min_input_files": 1,
    "max_file_group_size_bytes": 1,
    "delete_file_threshold": 0,
    "max_concurrent_file_group_rewrites": 1,
    "partial_progress_max_commits": 1,
}

_FLAGS: Final = (
    "rewrite_all",
    "partial_progress_enabled",
    "use_starting_sequence_number",
    "remove_dangling_deletes",
)


def _check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        problem = f"{name} must be an integer of at least {least}, got {value!r}"
        hint = f"omit {name} for its default"
        raise UsageError(problem, hint=hint)


def _java(name: str) -> str:
    if name == "target_spec_id":
        return "output-spec-id"
    if name.startswith("partial_progress_"):
        return "partial-progress." + name.removeprefix("partial_progress_").replace("_", "-")
    return name.replace("_", "-")


def parse_java(options: Mapping[str, str]) -> dict[str, Any]:
    """Convert options as Iceberg's procedures take them: names with hyphens, values as text.

    >>> parse_java({"min-input-files": "3", "partial-progress.enabled": "true"})
    {'min_input_files': 3, 'partial_progress_enabled': True}
    """
    kinds = {_java(field.name): field for field in fields(CompactionOptions)}
    _check_names(options, kinds)
    return {kinds[name].name: _parse(name, str(kinds[name].type), text) for name, text in options.items()}


def _check_names(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"use one of {', '.join(known)}")
            raise UsageError(f"unknown option {name!r}", hint=hint)


def _parse(name: str, kind: str, text: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if name.endswith("-bytes"):
            return as_bytes(text, name)
        if kind.startswith("int"):
            return int(text)
        if kind == "float":
            return float(text)
    except (KeyError, ValueError):
        hint = {"bool": "write true or false", "float": "write a number such as 0.3"}
        problem = f"{name} must be of type {kind.partition(' ')[0]}, got {text!r}"
        raise UsageError(problem, hint=hint.get(kind, "write a number without a unit")) from None
    return tuple(part.strip() for part in text.split(",")) if kind.startswith("tuple") else text
