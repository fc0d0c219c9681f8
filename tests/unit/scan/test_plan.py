from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import NotExpressibleError, UnknownColumnError, UsageError
from skipstone.prune.ledger import Ledger


def ids(plan, **more):
    return sorted(sk.execute(plan, columns=["id"], **more).to_arrow()["id"].to_pylist())


def test_a_plan_holds_rows_per_file_and_proves_what_it_can(lake):
    plan = lake.scan("id between 4000 and 6999").plan()
    (task,) = plan.tasks
    assert task.path.endswith("part=0/0.parquet")
    assert task.rows.ranges() == [(4000, 7000)]
    assert task.proven == task.rows
    assert plan.residual is None
    assert plan.rows == 3000
    plan = lake.scan("id between 4001 and 6998 and x > 0").plan()
    assert plan.tasks[0].rows.ranges() == [(4000, 7000)]
    assert plan.tasks[0].proven.is_empty
    assert str(plan.residual) == str(plan.predicate)


def test_the_same_question_has_the_same_plan(lake):
    first = lake.scan("id = 5", columns=["x"]).plan()
    assert lake.scan("id = 5", columns=["x"]).plan() is first
    assert lake.scan("id = 5").plan() is not first
    assert lake.scan("id = 5", columns=["x"], threads=1).plan() is not first
    lake.refresh()
    again = lake.scan("id = 5", columns=["x"]).plan()
    assert again is not first
    assert again == first


def test_equality_is_content(lake, events):
    plan = lake.scan("id < 5").plan()
    assert plan == sk.open(events).scan(sk.col("id") < 5).plan()
    assert plan != lake.scan("id < 6").plan()
    assert plan != lake.scan("id < 5", columns=["id"]).plan()
    assert plan != "a plan"
    assert len({plan, sk.open(events).scan("id < 5").plan()}) == 1


def test_the_hash_is_the_same_in_another_process(lake):
    plan = lake.scan("kind = 'kind 3' and x > 1").plan()
    code = (
        "import pickle, sys, skipstone as sk; plan = pickle.load(sys.stdin.buffer);"
        "print(hash(plan), plan.digest, sk.execute(plan).to_arrow().num_rows)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    env = {**os.environ, "PYTHONHASHSEED": "3"}
    done = subprocess.run(command, input=pickle.dumps(plan), capture_output=True, env=env, check=True)
    rows = lake.scan("kind = 'kind 3' and x > 1").to_arrow().num_rows
    assert done.stdout.decode().split() == [str(hash(plan)), plan.digest, str(rows)]


def test_a_plan_is_read_with_other_columns(lake):
    plan = lake.scan("id >= 39998", columns=["id"]).plan()
    assert sk.execute(plan).schema.names == ["id"]
    assert sk.execute(plan, columns=["part", "kind"]).to_arrow().to_pydict() == {
        "part": [1, 1],
        "kind": ["kind 3", "kind 4"],
    }
    with pytest.raises(UnknownColumnError, match="kinds"):
        sk.execute(plan, columns=["kinds"])


def test_plans_combine(lake):
    low, even = lake.scan("id < 3000").plan(), lake.scan("kind = 'kind 2'").plan()
    wanted = {i for i in range(40_000) if i < 3000}, {i for i in range(40_000) if i % 10_000 % 5 == 2}
    assert ids(low & even) == sorted(wanted[0] & wanted[1])
    assert ids(low | even) == sorted(wanted[0] | wanted[1])
    assert ids(low - even) == sorted(wanted[0] - wanted[1])
    assert ids(even - low) == sorted(wanted[1] - wanted[0])
    assert ids((low - even) | (low & even)) == sorted(wanted[0])
    every = lake.scan().plan()
    assert ids(every - low) == sorted(set(range(40_000)) - wanted[0])
    assert (low - every).rows == 0
    assert (low & every).residual is None


def test_taking_away_keeps_rows_for_which_the_other_is_null(lake):
    every = lake.scan("id < 20000").plan()
    positive = lake.scan("x > 0").plan()
    assert sk.execute(every - positive).to_arrow()["x"].null_count > 0


def test_what_does_not_combine(lake, events):
    plan = lake.scan("id < 5").plan()
    with pytest.raises(UsageError, match="limit"):
        plan & lake.scan("id < 5", limit=3).plan()
    with pytest.raises(UsageError, match="version"):
        plan | sk.open(events / "part=0").scan("id < 5").plan()
    with pytest.raises(TypeError):
        plan & 3


def test_a_part_that_nobody_can_evaluate_is_refused_by_the_plan(lake):
    with pytest.raises(NotExpressibleError, match="soundex"):
        lake.scan("soundex(kind) = 'K530'").plan()


def test_names_are_checked(lake):
    with pytest.raises(UnknownColumnError, match="did you mean kind"):
        lake.scan("kinds = 'a'").plan()
    with pytest.raises(TypeError, match="unexpected keyword argument 'pages'"):
        lake.scan("id = 1", pages=False)
    with pytest.raises(UsageError, match="materialise"):
        lake.scan("id = 1", materialise="early")
    with pytest.raises(UsageError, match="threads"):
        lake.scan("id = 1", threads=0)


def test_how_to_read_is_chosen_and_explained(lake, tmp_path):
    noise = np.random.default_rng(1).bytes(3_200_000)
    large = pa.table(
        {"x": np.arange(32_000) % 10, "text": [noise[n : n + 100] for n in range(0, 3_200_000, 100)]}
    )
    pq.write_table(large, tmp_path / "large.parquet")
    hints = sk.open(tmp_path).scan("x = 1").plan().trace.hints
    assert (hints.materialise, hints.why) == ("late", "the other columns are read only where rows match")
    assert lake.scan("x > 1", columns=["x"]).plan().trace.hints.materialise == "one-pass"
    assert "less than another request" in lake.scan("id = 5").plan().trace.hints.why
    assert lake.scan("id >= 0").plan().trace.hints.why == "no rows to test"
    assert lake.scan("id = 5", materialise="late").plan().trace.hints.why == "requested"


def test_it_tells_about_itself(lake):
    plan = lake.scan("id = 5").plan()
    assert repr(plan) == str(plan)
    assert "kept 1 of 4" in str(plan)
    assert "<div" in plan._repr_html_()


def test_the_trace_is_written_up_when_asked_for(lake, monkeypatch):
    told = []
    true = Ledger.levels
    monkeypatch.setattr(Ledger, "levels", lambda ledger: told.append(1) or true(ledger))
    scan = lake.scan("id = 5")
    assert scan.to_arrow().num_rows == 1
    assert (scan.plan().hints.threads, told) == (1, [])
    trace = scan.plan().trace
    assert trace is scan.plan().trace
    assert (trace.hints, len(told)) == (scan.plan().hints, 1)
    assert [level.name for level in trace.levels][-3:] == ["files", "row groups", "pages"]
    moved = pickle.loads(pickle.dumps(lake.scan("id = 5").plan()))
    assert moved.trace == trace
    lake.refresh()
    assert trace.version == scan.plan().version
