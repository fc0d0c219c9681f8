"""What a question did and why, as data: units in, what dropped them, units kept, what it cost.

First what pruning did at each level, then what a scan planned and, once it has run, did, and what an
aggregation answered from metadata, read and passed over.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from skipstone.report import Reported

_MAX_NOTES = 100


class Cause(enum.StrEnum):
    """The kind of evidence that dropped a unit."""

    CONSTANT = "constant"
    PARTITION = "partition"
    BOUNDS = "bounds"
    NULLS = "nulls"
    BLOOM = "bloom"
    DICTIONARY = "dictionary"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Drop:
    """Units dropped for one reason: the evidence, and the condition it refuted."""

    cause: Cause
    condition: str
    units: int


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the cascade."""

    json_names: ClassVar[Mapping[str, str]] = {"whole": "proven"}
    json_also: ClassVar[Mapping[str, str]] = {"dropped": "dropped"}

    name: str
    units: int
    kept: int
    whole: int
    """Kept units in which every row is proven to match."""
    rows: int | None
    """Rows left after this level; None where no footer was read yet."""
    drops: tuple[Drop, ...] = ()
    requests: int = 0
    bytes: int = 0

    @property
    def dropped(self) -> int:
        """Units this level dropped."""
        return self.units - self.kept


@dataclass(frozen=True, slots=True)
class Note:
    """Metadata that could not be used: where, and why it was ignored."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trace(Reported):
    """The whole cascade over one file."""

    view: ClassVar[str] = "skipstone.report.explain:prune_tree"

    json_names: ClassVar[Mapping[str, str]] = {"rows": "rows_total", "rows_whole": "rows_proven"}
    json_also: ClassVar[Mapping[str, str]] = {"requests": "requests", "bytes": "bytes"}

    path: str
    predicate: str
    rows: int
    rows_kept: int
    rows_whole: int
    levels: tuple[Level, ...]
    notes: tuple[Note, ...] = ()
    unsupported: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Reads of metadata, over all levels."""
        return sum(level.requests for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of metadata read, over all levels."""
        return sum(level.bytes for level in self.levels)

    def level(self, name: str) -> Level | None:
        """The level of that name, if the cascade reached it."""
        return next((level for level in self.levels if level.name == name), None)


class Notes:
    """Collects notes, each once, and no more than a bounded number."""

    __slots__ = ("_notes", "_suppressed")

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}
        self._suppressed = 0

    def add(self, unit: str, reason: str) -> None:
        """Record that something was ignored."""
        note = Note(unit, reason)
        if note in self._notes:
            return
        if len(self._notes) < _MAX_NOTES:
            self._notes[note] = None
        else:
            self._suppressed += 1

    def done(self) -> tuple[Note, ...]:
        """The notes, with a last one that counts those left out."""
        more = (Note("file", f"{self._suppressed} more notes like these"),) if self._suppressed else ()
        return (*self._notes, *more)


@dataclass(frozen=True, slots=True)
class FilterStats:
    """What became of the partitions of a table whose partitioning may have changed."""

    unevaluable_specs: int = 0
    """Specs of the table that the predicate could not be projected onto; their partitions are kept."""
    eval_errors: int = 0
    """Distinct partition keys whose evaluation failed; they are kept."""
    fail_open_partitions: int = 0
    """Distinct partition keys that were kept for either of these reasons."""
    fail_open_files: int = 0
    """Files among the candidates that lie in such partitions."""
    unconstrained_specs: int = 0
    """Specs without a field made from a column of the predicate; their partitions are kept by right."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Data that phase two reads: planned figures are estimates, since matching rows decide about payload."""

    json_names: ClassVar[Mapping[str, str]] = {"of_bytes": "bytes_total"}

    requests: int
    bytes: int
    of_bytes: int
    """Bytes of the same columns in the whole lake, as far as footers have been opened."""


@dataclass(frozen=True, slots=True)
class Hints:
    """How phase two goes about it, and why."""

    materialise: str
    why: str
    threads: int
    batch_rows: int
    route: str


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a run: planning, reading the predicate's columns, reading the others."""

    name: str
    rows: int
    """Rows that came out of it."""
    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did."""

    rows: int
    batches: int
    pieces: int
    """Row groups, or parts of them, that were read."""
    seconds: float
    requests: int
    bytes: int
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexUse:
    """The index that a plan used: where it is, its version, how many files it covers."""

    place: str
    version: int
    covered: int
    problems: tuple[str, ...] = ()
    """Why parts of it were not used."""


@dataclass(frozen=True, slots=True)
class DeleteUse:
    """What a table's delete files mean for a plan."""

    files: int
    """Delete files of the snapshot."""
    applied: int
    """Those that apply to files that are kept."""
    rows: int
    """Rows of kept files that are deleted by their places; they are not read."""
    tested: int
    """Kept files whose rows are compared with deleted values when they are read."""


@dataclass(frozen=True, slots=True)
class SparkUse:
    """How a scan becomes a data frame, and why."""

    route: str
    """"driver", "slices" or "reader"."""
    why: str
    tasks: int
    """Tasks that Spark is given; none for what the driver reads itself."""
    bytes: int
    """About how many compressed bytes are read."""


@dataclass(frozen=True, slots=True)
class ScanTrace(Reported):
    """The whole plan of one scan: levels from the lake down to pages, then what is left to read."""

    view: ClassVar[str] = "skipstone.report.explain:scan_tree"

    json_names: ClassVar[Mapping[str, str]] = {"rows": "rows_total", "rows_whole": "rows_proven"}
    json_also: ClassVar[Mapping[str, str]] = {"requests": "requests", "bytes": "bytes"}

    lake: str
    version: str
    predicate: str
    residual: str
    """What is still tested on rows; empty when metadata has proven every row that is kept."""
    columns: tuple[str, ...]
    limit: int | None
    order: tuple[str, ...]
    files: int
    rows: int
    """Rows of the files whose footers were looked at."""
    rows_kept: int
    rows_whole: int
    """Rows proven to match."""
    tasks: int
    levels: tuple[Level, ...]
    hints: Hints
    notes: tuple[Note, ...] = ()
    unsupported: tuple[str, ...] = ()
    index: IndexUse | None = None
    partitions: FilterStats | None = None
    """How far partitions could be judged, of a table whose partitioning may have changed."""
    deletes: DeleteUse | None = None
    reads: Reads | None = None
    run: Run | None = None
    spark: SparkUse | None = None

    @property
    def requests(self) -> int:
        """Reads of metadata, over all levels."""
        return sum(level.requests for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of metadata read, over all levels."""
        return sum(level.bytes for level in self.levels)

    def level(self, name: str) -> Level | None:
        """The level of that name, if planning reached it."""
        return next((level for level in self.levels if level.name == name), None)


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """Units of one level whose aggregates were known without reading them."""

    level: str
    """"files", "row groups" or "pages"."""
    units: int
    rows: int


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """Where the answers about a column come from."""

    json_names: ClassVar[Mapping[str, str]] = {"read": "rows_read"}
    json_also: ClassVar[Mapping[str, str]] = {"column": "name", "rows_known": "known"}

    column: str
    """Its name; empty for the count of rows."""
    functions: tuple[str, ...]
    """As the answer names them."""
    answered: tuple[LevelAnswer, ...]
    """From the largest units to the smallest; a unit counts at the largest level that proves it."""
    read: int
    """Rows that are read for it."""
    why: tuple[str, ...]
    """Why rows are read, a sentence each; empty if none is."""

    @property
    def name(self) -> str | None:
        """The column's name; None for the count of rows."""
        return self.column or None

    @property
    def known(self) -> int:
        """Rows that are answered from metadata."""
        return sum(level.rows for level in self.answered)


@dataclass(frozen=True, slots=True)
class MemberUse:
    """What sets of ids or places mean for the row groups that the predicate has kept."""

    json_names: ClassVar[Mapping[str, str]] = {"units": "row_groups"}
    json_also: ClassVar[Mapping[str, str]] = {"partly": "partly"}

    sets: tuple[str, ...]
    """Each set in words, with the way its members are found."""
    units: int
    outside: int
    """Row groups without a member, which are not read."""
    inside: int
    """Row groups whose rows are all members."""
    rows_outside: int
    """Rows that are not read since they are proven not to be members."""

    @property
    def partly(self) -> int:
        """Row groups that must be looked into."""
        return self.units - self.outside - self.inside


@dataclass(frozen=True, slots=True)
class AggregateRun:
    """What an aggregation did."""

    rows: int
    """Rows that were read and counted in."""
    pieces: int
    requests: int
    bytes: int
    seconds: float
    engine: str
    """"2 threads", or the name of another engine and its tasks."""
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class AggregateTrace(Reported):
    """The plan of an aggregation: the scan below it, sets of members, and where answers come from."""

    view: ClassVar[str] = "skipstone.report.explain:aggregate_tree"

    scan: ScanTrace
    functions: tuple[str, ...]
    group_by: tuple[str, ...]
    rows: int
    """Rows that may count: those of the scan that may be members."""
    columns: tuple[ColumnUse, ...]
    members: MemberUse | None = None
    cached: bool = True
    """Whether metadata may answer at all."""
    notes: tuple[str, ...] = ()
    run: AggregateRun | None = None

    @property
    def rows_read(self) -> int:
        """Rows that are read for at least one column, even if metadata answers for all the others."""
        return max((use.read for use in self.columns), default=0)
