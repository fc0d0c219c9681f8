"""Traces: the units that each level of a query judged, kept and dropped, why, and at what cost.

Traces of pruning come first, then those of scans and their runs, then those of aggregations.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from skipstone.report import Reported
from skipstone.report.units import phrase, plural, some

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
    """Rows left after this level; None if no footer has been read yet."""
    drops: tuple[Drop, ...] = ()
    requests: int = 0
    bytes: int = 0

    @property
    def dropped(self) -> int:
        """Units this level dropped."""
        return self.units - self.kept


@dataclass(frozen=True, slots=True)
class Note:
    """Metadata that was ignored: its unit, and the reason."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trace(Reported):
    """What pruning one file did at each level, as data.

    Examples:
        >>> import skipstone as sk
        >>> trace = sk.prune("events/part-0.parquet", "event_id < 10").trace
        >>> trace.rows, trace.rows_kept
        (250, 50)
    """

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
        """Reads of metadata at all levels."""
        return sum(level.requests for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of metadata read at all levels."""
        return sum(level.bytes for level in self.levels)

    def level(self, name: str) -> Level | None:
        """Return the level of this name, if the cascade reached it."""
        return next((level for level in self.levels if level.name == name), None)


class Notes:
    """Collects notes, each once, up to a maximum number."""

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
        """Return the notes, and one that counts those left out."""
        more = (Note("file", f"{self._suppressed} more notes like these"),) if self._suppressed else ()
        return (*self._notes, *more)


@dataclass(frozen=True, slots=True)
class FilterStats:
    """How the partitions of a table with several partition specs were judged.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("db.events", catalog="warehouse").plan_files("event_id = 7").filter_stats.eval_errors
        0
    """

    unevaluable_specs: int = 0
    """Specs that the predicate could not be projected onto; their partitions are kept."""
    eval_errors: int = 0
    """Distinct partition keys whose evaluation failed; they are kept."""
    fail_open_partitions: int = 0
    """Distinct partition keys that were kept for these reasons."""
    fail_open_files: int = 0
    """Candidate files in these partitions."""
    unconstrained_specs: int = 0
    """Specs without a field from a column of the predicate; their partitions are kept."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Data that phase two reads. Planned figures are estimates: other columns are read by matching rows."""

    json_names: ClassVar[Mapping[str, str]] = {"of_bytes": "bytes_total"}

    requests: int
    bytes: int
    of_bytes: int
    """Bytes of the same columns in all files, extrapolated from the kept files by the sizes of files."""


@dataclass(frozen=True, slots=True)
class Hints:
    """How phase two reads rows, and why."""

    materialise: str
    why: str
    threads: int
    batch_rows: int
    route: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a run: planning, reading the columns of the predicate, reading the others."""

    name: str
    rows: int
    """Rows that it returned."""
    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """The work of a run."""

    rows: int
    batches: int
    pieces: int
    """Row groups, or parts of row groups, that were read."""
    seconds: float
    requests: int
    bytes: int
    """Column data that was read; never more than ``Reads.of_bytes``."""
    phases: tuple[Phase, ...] = ()
    bytes_transferred: int = 0
    """With gaps between pages, pages that were fetched again, and metadata."""


@dataclass(frozen=True, slots=True)
class IndexUse:
    """The index that a plan used: location, version, and number of files covered."""

    place: str
    version: int
    covered: int
    problems: tuple[str, ...] = ()
    """Why parts of it were not used."""


@dataclass(frozen=True, slots=True)
class DeleteUse:
    """The delete files of a table that a plan applies."""

    files: int
    """Delete files of the snapshot."""
    applied: int
    """Delete files that apply to kept files."""
    rows: int
    """Rows of kept files that are deleted by position; they are not read."""
    tested: int
    """Kept files whose rows are checked against equality deletes when they are read."""


@dataclass(frozen=True, slots=True)
class OverlayUse:
    """Uncommitted rows of a transaction or a tail that a scan reads, and the rows that they hide."""

    name: str
    """"transaction" or "tail"."""
    rows: int
    """Uncommitted rows."""
    kept: int
    """Those that may match."""
    hidden: int
    """Rows of the snapshot that are deleted or replaced."""

    def __str__(self) -> str:
        rows = plural(self.rows, "uncommitted row")
        kept = f"{self.kept:,} of {rows} may match" if self.rows else "no uncommitted rows"
        return f"{self.name}: {phrase(kept, some(self.hidden, 'row', ' of the snapshot hidden'))}"


@dataclass(frozen=True, slots=True)
class SparkUse:
    """The route of a scan to a Spark data frame, and why."""

    route: str
    """"driver", "slices" or "reader"."""
    why: str
    tasks: int
    """Spark tasks; 0 if the driver reads the rows."""
    bytes: int
    """Compressed bytes to read, estimated."""


@dataclass(frozen=True, slots=True)
class EngineUse:
    """The route of a scan to another engine of this process, and why."""

    engine: str
    """"duckdb", "datafusion" or "polars"."""
    route: str
    """"slices" or "reader"."""
    why: str
    files: int
    bytes: int
    """Compressed bytes to read, estimated."""

    def __str__(self) -> str:
        reads = {"slices": "page slices", "reader": "the engine's own reader"}[self.route]
        return f"{reads}, {plural(self.files, 'file')}: {self.why}"


@dataclass(frozen=True, slots=True)
class ScanTrace(Reported):
    """What planning a scan did at each level, and what remains to be read, as data.

    Examples:
        >>> import skipstone as sk
        >>> trace = sk.open("events").scan("event_id = 7").plan().trace
        >>> trace.files, trace.tasks, trace.rows_kept
        (4, 1, 50)
    """

    view: ClassVar[str] = "skipstone.report.explain:scan_tree"

    json_names: ClassVar[Mapping[str, str]] = {"rows": "rows_total", "rows_whole": "rows_proven"}
    json_also: ClassVar[Mapping[str, str]] = {"requests": "requests", "bytes": "bytes"}

    lake: str
    version: str
    predicate: str
    residual: str
    """The condition tested on rows; empty if metadata proves every kept row."""
    columns: tuple[str, ...]
    limit: int | None
    order: tuple[str, ...]
    files: int
    rows: int
    """Rows of the files whose footers were read."""
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
    """Partitions of a table that could not be judged."""
    deletes: DeleteUse | None = None
    overlay: OverlayUse | None = None
    reads: Reads | None = None
    run: Run | None = None
    spark: SparkUse | None = None
    engine: EngineUse | None = None
    file_bytes: int = 0
    """Bytes of all files."""

    @property
    def requests(self) -> int:
        """Reads of metadata at all levels."""
        return sum(level.requests for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of metadata read at all levels."""
        return sum(level.bytes for level in self.levels)

    def level(self, name: str) -> Level | None:
        """Return the level of this name, if planning reached it."""
        return next((level for level in self.levels if level.name == name), None)


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """Units of one level whose aggregates came from metadata."""

    level: str
    """"files", "row groups" or "pages"."""
    units: int
    rows: int


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """Sources of the answers about a column."""

    json_names: ClassVar[Mapping[str, str]] = {"read": "rows_read"}
    json_also: ClassVar[Mapping[str, str]] = {"column": "name", "rows_known": "rows_answered"}

    column: str
    """Its name; empty for the count of rows."""
    functions: tuple[str, ...]
    """Their names in the answer."""
    answered: tuple[LevelAnswer, ...]
    """From the largest units to the smallest; a unit counts at the largest level that proves it."""
    read: int
    """Rows that are read for it."""
    why: tuple[str, ...]
    """Why rows are read, a sentence each; empty if no row is read."""

    @property
    def name(self) -> str | None:
        """The column's name; None for the count of rows."""
        return self.column or None

    @property
    def rows_answered(self) -> int:
        """Rows that metadata answers for."""
        return sum(level.rows for level in self.answered)


@dataclass(frozen=True, slots=True)
class MemberUse:
    """Effect of sets of ids or positions on the row groups that the predicate keeps."""

    json_names: ClassVar[Mapping[str, str]] = {"units": "row_groups"}
    json_also: ClassVar[Mapping[str, str]] = {"partly": "partly"}

    sets: tuple[str, ...]
    """Each set in words, with its look-up method."""
    units: int
    outside: int
    """Row groups without a member, which are not read."""
    inside: int
    """Row groups whose rows are all members."""
    rows_outside: int
    """Rows that are not read because they are proven not to be members."""

    @property
    def partly(self) -> int:
        """Row groups with both members and other rows, which are read."""
        return self.units - self.outside - self.inside


@dataclass(frozen=True, slots=True)
class AggregateRun:
    """The work of an aggregation."""

    rows: int
    """Rows that were read and aggregated."""
    pieces: int
    requests: int
    bytes: int
    seconds: float
    engine: str
    """"2 threads", or the name of another engine and its tasks."""
    phases: tuple[Phase, ...] = ()
    bytes_transferred: int = 0
    """With gaps between pages, pages that were fetched again, and metadata."""


@dataclass(frozen=True, slots=True)
class AggregateTrace(Reported):
    """The plan of an aggregation: its scan, sets of members, and sources of answers."""

    view: ClassVar[str] = "skipstone.report.explain:aggregate_tree"

    scan: ScanTrace
    functions: tuple[str, ...]
    group_by: tuple[str, ...]
    rows: int
    """Rows of the scan that may be members."""
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
