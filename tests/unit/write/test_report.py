"""What is told of an ingest."""

from __future__ import annotations

import json
from dataclasses import replace

from skipstone.report.text import to_text
from skipstone.write.report import IngestReport, LookUps, PipelineReport, Seconds
from skipstone.write.views import ingest_tree, pipeline_tree

REPORT = IngestReport(
    lake="lake/events",
    rows=20_000_000,
    sizes=(118_200_000, 131_000_000, 125_000_000),
    row_groups=27,
    partitions=1,
    seconds=Seconds(2.1, 21.4, 0.0102, 3.0),
    index_bytes=1_500_000,
    skips=(LookUps("event_id", 0.0004, 0.333), LookUps("day", 1.0, 1.0)),
)

TEXT = """\
20,000,000 rows in 3 files, 374.2 MB: 118.2 MB to 131.0 MB each, 27 row groups
lake/events: surveyed in 2.10 s, written in 21.40 s (17.5 MB/s), published in 10.2 ms, indexed in
3.00 s (index size 1.5 MB)

lookup column  share of lake read      rows  files
event_id       █░░░░░░░░░░░░░░░░░░░  <0.1 %   33 %
day            ████████████████████   100 %  100 %"""


def test_the_text() -> None:
    assert to_text(ingest_tree(REPORT)) == str(REPORT) == TEXT
    assert 50 < max(map(len, to_text(ingest_tree(REPORT), 60).splitlines())) <= 60
    assert "\x1b[" in to_text(ingest_tree(REPORT), color=True)


def test_nothing_and_little() -> None:
    nothing = IngestReport("lake", 0, (), 0, 0, Seconds(0.5), 0)
    assert str(nothing) == "no rows, so nothing was written\nlake: surveyed in 500 ms"
    one = IngestReport("lake", 1, (500,), 1, 1, Seconds(), 0)
    assert str(one).startswith("1 row in 1 file, 500 B: 500 B, 1 row group\n")
    assert "1 row in 2 files in 2 partitions" in str(replace(one, sizes=(5, 5), partitions=2))


def test_an_index_that_failed_is_told() -> None:
    said = str(replace(REPORT, index_problem="disk\x1b full", index_bytes=0, skips=()))
    assert "rows were ingested, but the index is not up to date: disk" in said
    assert "\x1b" not in said


def test_clustering_that_was_remembered_is_told() -> None:
    assert str(replace(REPORT, cluster_by=("event_id", "day"))) == TEXT
    found = replace(REPORT, cluster_by=("event_id", "d\x1bay"), clustered_as_before=True)
    said = to_text(ingest_tree(found), 200)
    assert said.splitlines()[0].endswith("27 row groups; clustered by event_id, d\\x1bay, like the lake")
    told = json.loads(json.dumps(found.to_json()))
    assert (told["cluster_by"], told["clustered_as_before"]) == (["event_id", "d\x1bay"], True)


def test_json() -> None:
    told = json.loads(json.dumps(REPORT.to_json()))
    assert (told["rows"], told["files"], told["bytes"]) == (20_000_000, 3, 374_200_000)
    assert told["skips"][0] == {"column": "event_id", "rows": 0.0004, "files": 0.333}
    assert told["seconds"]["write"] == 21.4
    assert told["index_problem"] == ""
    run = PipelineReport("lake", 4, 2, ("in/b.csv",), (REPORT, REPORT))
    told = json.loads(json.dumps(run.to_json()))
    assert (told["rows"], told["files"], told["bytes"]) == (40_000_000, 6, 748_400_000)
    assert (told["new"], told["already_ingested"], told["changed"], len(told["batches"])) == (
        4,
        2,
        ["in/b.csv"],
        2,
    )


def test_a_run() -> None:
    run = PipelineReport("lake", 4, 2, ("in/b.csv",), (REPORT,))
    said = str(run)
    assert said == to_text(pipeline_tree(run))
    assert said.startswith("ingested 4 files; 2 already ingested\n")
    assert "in/b.csv" in said
    assert said.endswith(TEXT)
    assert str(PipelineReport("lake", 0, 0, (), ())) == "no new files"
    assert str(PipelineReport("lake", 0, 3, (), ())) == "nothing to do: 3 files already ingested"
