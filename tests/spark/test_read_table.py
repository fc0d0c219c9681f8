"""Iceberg tables through Spark: every way gives the rows that the maker of the table knows to be live."""

from __future__ import annotations

import json
import math
import pickle
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import skipstone as sk
from skipstone.engine.spark_types import arrow_schema, spark_schema, to_spark_batch
from skipstone.errors import SchemaError, SkipstoneError, UsageError
from skipstone.scan import parts
from skipstone.spark import routes
from skipstone.spark.source import SkipstoneSource
from tests.iceberg._maker import Maker
from tests.spark._reads import CANT, PUSHING, Oracle, World, conf
from tests.spark.test_cluster_engine import run

pytestmark = pytest.mark.spark

ROUTES = ("driver", "slices", "auto")
SOURCES = ("option", "pushed", "unpushed")
ON = {PUSHING.replace(".", "__"): "true"}
HOUR = 3_600_000_000


def u(n: int) -> uuid.UUID:
    return uuid.UUID(bytes=bytes([n, 255 - n] * 8))


# -- tables ------------------------------------------------------------------------------------


def first_row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "g": None if n % 7 == 0 else "abc"[n % 3],
        "v": math.nan if n % 9 == 0 else n / 4,
        "gone": n,
        "st": None if n % 11 == 0 else {"x": n % 5, "y": f"y {n}"},
        "l": [n, None],
        "m": {"k": n},
        "t": n * HOUR,
        "tz": n * HOUR,
        "d": n,
        "dec": Decimal(n) / 4,
        "b": bytes([n]),
        "fx": bytes([n] * 4),
        "u": None if n % 10 == 0 else u(n),
    }


TYPES: tuple[tuple[str, Any], ...] = (
    *(("id", "int"), ("g", "string"), ("v", "float"), ("gone", "long"), ("st", {"x": "int", "y": "string"})),
    *(("l", ["long"]), ("m", ("string", "long")), ("t", "timestamp"), ("tz", "timestamptz"), ("d", "date")),
    *(("dec", "decimal(9, 2)"), ("b", "binary"), ("fx", "fixed[4]"), ("u", "uuid")),
)
# As Iceberg's own reader has them in Spark.
IN_SPARK = (
    "st struct<x: bigint, kind: string, z: date>, id bigint, g string, w double, l array<bigint>, "
    "m map<string, bigint>, t timestamp_ntz, tz timestamp, d date, dec decimal(12, 2), b binary, fx binary, "
    "u string, new string"
)
TEXTS = [
    *("id between 15 and 60", "g is null and id > 30", "not w < 12", "st.x = 3 and t >= '1970-01-02'"),
    *("st.kind = 'y 17' or new = 'n 71'", "st is null", "tz < '1970-01-02 03:00:00' and g <> 'a'"),
    *("d = DATE '1970-02-11' or dec > 12.3", "id < 0"),
    f"u in ('{u(8)}', '{u(44)}', '{u(71)}')",
]


def evolved(root: Path) -> Maker:
    """Two specs and two schemas, each way to delete, and columns that were renamed, moved and dropped."""
    table = Maker(root, TYPES, [("g", "identity")], seed="spark")
    table.append([first_row(n) for n in range(40)], leave_out=True)
    table.tag("first")
    table.delete_positions([at for at in table.places() if at[1] % 5 == 1], scope="file")
    table.evolve_schema(
        add={"new": "string", "st.z": "date"},
        drop=["gone"],
        rename={"v": "w", "st.y": "kind"},
        widen={"id": "long", "v": "double", "st.x": "long", "dec": "decimal(12, 2)"},
        order=["st", "id", "g", "w", "l", "m", "t", "tz", "d", "dec", "b", "fx", "u", "new"],
    )
    table.evolve_spec([("id", "bucket[3]"), ("d", "month")])
    table.append([second_row(n) for n in range(40, 80)], files=2)
    late = [at for at in table.places() if at[1] % 4 == 2]
    table.delete_positions(late, scope="partition")
    table.delete_equal([table.field("id").id], [(3,), (41,), (70,)])
    table.delete_equal([table.field("g").id, table.field("w").id], [("c", 12.5), (None, math.nan)])
    table.append([second_row(n) for n in range(66, 74)])
    return table


def second_row(n: int) -> dict[str, Any]:
    row = first_row(n)
    inner = None if row["st"] is None else {"kind": row["st"]["y"], "x": n % 5, "z": n}
    return {**row, "w": row["v"], "new": f"n {n}", "st": inner}


def with_vectors(root: Path) -> Maker:
    """Version 3: deletion vectors, and a default for rows that are older than their column."""
    types = [("id", "long"), ("g", "string"), ("v", "double")]
    table = Maker(root, types, [("g", "identity")], format_version=3, seed="vectors")
    table.append([first_row(n) for n in range(60)])
    table.evolve_schema(add={"e": "int"}, defaults={"e": 7}, rename={"v": "w"})
    table.append([{**first_row(n), "w": 0.5, "e": n} for n in range(60, 80)], leave_out=True)
    files = [one.file for one in table.live()]
    table.delete_vector({file.path: range(0, file.records, 3) for file in files[:4]})
    return table


def plain(table: pa.Table) -> pa.Table:
    """The maker's rows with texts for UUIDs, which the oracle's own session has no type for."""
    for at, field in enumerate(table.schema):
        if field.type == pa.uuid():
            texts = [None if value is None else str(value) for value in table.column(at).to_pylist()]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_fixed_size_binary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.binary()))
    return table


def world(spark: SparkSession, table: Maker, ddl: str, texts: list[str]) -> World:
    frame = spark.createDataFrame(plain(table.table()), ddl)
    return World(spark, table.metadata_location, Oracle(frame, texts))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return evolved(tmp_path_factory.mktemp("evolved"))


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return with_vectors(tmp_path_factory.mktemp("vectors"))


def ids(frame: DataFrame) -> list[int]:
    found: list[int] = frame.select("id").toArrow()["id"].to_pylist()
    return sorted(found)


def live_ids(table: Maker, snapshot: int | None = None, schema: int | None = None) -> list[int]:
    return sorted(table.table(snapshot, schema)["id"].to_pylist())


# -- rows --------------------------------------------------------------------------------------


def test_every_way_gives_the_live_rows(
    spark: SparkSession, table: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_LEAST_BYTES", 1)
    found = world(spark, table, IN_SPARK, TEXTS)
    assert 30 < found.oracle.table.num_rows < 88
    found.check([None, *TEXTS], ["driver"])
    found.check([None, *TEXTS[::4]], ["slices"])
    found.check(TEXTS[-1:], ["auto", *SOURCES])
    assert found.taken == {"driver": 11, "slices": 4, "auto": 1, **dict.fromkeys(SOURCES, 1)}


def test_some_columns(spark: SparkSession, table: Maker) -> None:
    texts = ["w > 5 and g <> 'a'"]
    found = world(spark, table, IN_SPARK, texts)
    found.check(texts, ROUTES, ["new", "u", "id"])
    found.check(texts, ["option"], ["new", "u", "id"])
    scan = sk.open(table.metadata_location).scan(columns=["st.z", "g"])
    for route in ("driver", "slices"):
        frame = scan.to_spark(spark, route=route)
        assert frame.schema.simpleString() == "struct<st.z:date,g:string>"
        assert frame.count() == found.oracle.table.num_rows


def test_deletion_vectors_and_defaults(spark: SparkSession, vectors: Maker) -> None:
    texts = ["e = 7", "e > 60 and g = 'b'", "w > 3"]
    found = world(spark, vectors, "id bigint, g string, w double, e int", texts)
    assert found.oracle.table.num_rows < 80
    found.check([None, *texts], ROUTES[:2])
    found.check(texts[1:2], ["pushed"])


def test_order_and_limit(spark: SparkSession, table: Maker) -> None:
    scan = sk.open(table.metadata_location).scan("w > 3", ["id"], limit=9, order_by=["u desc", "id"])
    wanted = scan.to_arrow()["id"].to_pylist()
    assert len(wanted) == 9
    for route in ("driver", "slices"):
        assert scan.to_spark(spark, route=route).toArrow()["id"].to_pylist() == wanted


@pytest.mark.parametrize("name", ["table", "vectors"])
def test_counting_leaves_deleted_rows_out(
    spark: SparkSession, name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_LEAST_BYTES", 1)
    maker: Maker = request.getfixturevalue(name)
    opened = sk.open(maker.metadata_location)
    wanted = live_ids(maker)
    assert opened.scan().count(engine=spark) == len(wanted)
    some = opened.scan("id % 2 = 0 and id > 8")
    assert some.count(engine=spark) == sum(n % 2 == 0 and n > 8 for n in wanted)
    assert opened.scan().to_spark(spark, route="slices").count() == len(wanted)
    bare = opened.scan(columns=[])
    assert [bare.to_spark(spark, route=route).count() for route in ("driver", "slices")] == [len(wanted)] * 2


# -- which way, and what is refused ------------------------------------------------------------


def test_the_reader_is_never_taken(
    spark: SparkSession, table: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = sk.open(table.metadata_location).scan()
    assert json.loads(scan.explain(format="json", session=spark))["spark"]["route"] == "driver"
    monkeypatch.setattr(routes, "_DRIVER_BYTES", 0)
    told = json.loads(scan.explain(format="json", session=spark))["spark"]
    assert told["route"] == "slices"
    assert told["why"].startswith(CANT)
    assert "field id" in told["why"]
    assert "deleted" in scan.explain(session=spark)
    with pytest.raises(UsageError, match=rf"{CANT}.*field id.*deleted.*route=\"slices\""):
        scan.to_spark(spark, route="reader")
    with pytest.raises(UsageError, match=CANT):
        scan.explain(session=spark, route="reader")


REFUSED = {"time": "times of day", "timestamp_ns": "nanoseconds", "timestamptz_ns": "nanoseconds"}


def test_types_that_spark_has_not(spark: SparkSession, tmp_path: Path) -> None:
    made = Maker(tmp_path, [("id", "long"), *((f"a {type}", type) for type in REFUSED)], format_version=3)
    made.append([{"id": n, **{f"a {type}": n * 1000 for type in REFUSED}} for n in range(5)])
    opened = sk.open(made.metadata_location)
    for type, words in REFUSED.items():
        wanted = f"column a {type}: Spark does not support {words}"
        for route in ("driver", "slices", "auto"):
            with pytest.raises(SchemaError, match=wanted):
                opened.scan(columns=["id", f"a {type}"]).to_spark(spark, route=route)
        with pytest.raises(SchemaError, match=wanted):
            SkipstoneSource({"path": made.metadata_location, "columns": f"id,a {type}"}).schema()
    # As part of a condition it is Skipstone's to read.
    scan = opened.scan(" and ".join(f"`a {type}` is not null" for type in REFUSED), ["id"])
    assert ids(scan.to_spark(spark, route="slices")) == [0, 1, 2, 3, 4]


def test_uuids_are_texts_of_tables_only() -> None:
    values = [u(n).bytes if n % 3 else None for n in range(9)]
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    batch = pa.record_batch({"u": array, "n": pa.nulls(9)})
    schema = spark_schema(batch.schema, batch.schema, table=True)
    assert schema.simpleString() == "struct<u:string,n:void>"
    target = pa.schema([("u", pa.string()), ("n", pa.null())])
    for part in (batch, batch.slice(2, 5), batch.slice(3, 1), batch.slice(0, 0)):
        made = to_spark_batch(part, target)
        made.validate(full=True)
        wanted = [None if one is None else str(one) for one in part["u"].to_pylist()]
        assert made["u"].to_pylist() == wanted
    with pytest.raises(SchemaError, match="Spark does not support UUIDs"):
        spark_schema(batch.schema, batch.schema)


def test_a_column_of_no_type(spark: SparkSession, tmp_path: Path) -> None:
    made = Maker(tmp_path, [("id", "long")], format_version=3)
    made.append([{"id": n} for n in range(5)])
    made.evolve_schema(add={"nothing": "unknown"})
    scan = sk.open(made.metadata_location).scan()
    for route in ("driver", "slices"):
        frame = scan.to_spark(spark, route=route)
        assert frame.schema.simpleString() == "struct<id:bigint,nothing:void>"
        assert sorted(map(tuple, frame.collect())) == [(n, None) for n in range(5)]


# -- format("skipstone") -----------------------------------------------------------------------


class Shop:
    """A warehouse with one table of the maker's, whose newest metadata is put in when asked."""

    def __init__(self, root: Path) -> None:
        self.path = root / "warehouse"
        self.catalog = sk.catalog(self.path)
        self.catalog.iceberg.create_namespace("db")
        self.maker = Maker(root / "table", [("id", "long"), ("u", "uuid")], seed="shop")
        self.maker.append([{"id": n, "u": u(n)} for n in range(10)])
        self.maker.tag("ten")
        self.show()

    def show(self) -> None:
        catalog = self.catalog.iceberg
        if catalog.table_exists("db.t"):
            catalog.drop_table("db.t")
        catalog.register_table("db.t", self.maker.metadata_location)

    def load(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("skipstone").options(catalog=str(self.path), **options).load("db.t")

    def source(self, path: str = "db.t", **options: str) -> SkipstoneSource:
        """What Spark makes of the same."""
        return SkipstoneSource({"catalog": str(self.path), "path": path, **options})


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def rows_of(source: SkipstoneSource) -> pa.Table:
    """The rows of a source as Spark reads them: by what it sends from process to process."""
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    sent, tasks = pickle.loads(pickle.dumps((reader, reader.partitions())))
    batches = [batch for task in tasks for batch in sent.read(task)]
    return pa.Table.from_batches(batches, arrow_schema(schema))


def test_a_table_by_its_name(spark: SparkSession, shop: Shop) -> None:
    # The name is a part of the key that the catalog keeps its tables under.
    named = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{shop.path}/catalog.db"}
    asked = spark.read.format("skipstone").options(
        catalog="skipstone", where="id > 1", columns="u,id", **named
    )
    asked.load("db.t").createOrReplaceTempView("things")
    found = spark.sql(f"select id from things where u < '{u(5)}' order by id").collect()
    assert [tuple(row) for row in found] == [(2,), (3,), (4,)]
    spark.catalog.dropTempView("things")


def test_a_frame_stays_at_its_snapshot(spark: SparkSession, shop: Shop) -> None:
    early = shop.load(spark)
    shop.maker.delete_equal([1], [(3,), (4,)])
    shop.maker.append([{"id": n, "u": None} for n in range(20, 25)])
    shop.show()
    late = shop.load(spark)
    known = [n for n in [*range(10), *range(20, 25)] if n not in (3, 4)]
    assert ids(late) == known == live_ids(shop.maker)
    # Nobody asks the catalog again, neither to plan nor on the executors.
    (shop.path / "catalog.db").unlink()
    assert ids(early) == list(range(10))
    assert early.where("id > 7").count() == 2
    assert ids(late) == known


def test_snapshots(spark: SparkSession, shop: Shop) -> None:
    maker = shop.maker
    first = maker.head()
    assert first is not None
    maker.evolve_schema(rename={"id": "number"})
    maker.remove_files([one.file.path for one in maker.live()])
    shop.show()
    now = rows_of(shop.source())
    assert (now.column_names, now.num_rows) == (["number", "u"], 0)
    # A snapshot has its own schema.
    for name in (str(first.id), "ten", "2025-10-09T08:53:31"):
        assert rows_of(shop.source(snapshot=name))["id"].to_pylist() == [*range(10)], name
        by_file = SkipstoneSource({"path": maker.metadata_location, "snapshot": name})
        assert rows_of(by_file)["id"].to_pylist() == [*range(10)]
    assert ids(shop.load(spark, snapshot="ten")) == [*range(10)]


def test_only_the_plan_travels(shop: Shop) -> None:
    source = shop.source(where="id > 4")
    schema = source.schema()
    moved = pickle.loads(pickle.dumps(source))
    (shop.path / "catalog.db").unlink()
    reader = moved.reader(schema)
    (part,) = reader.partitions()
    # Spark sends both to every task.
    for sent in (pickle.dumps(reader), pickle.dumps(moved)):
        assert b"manifest" not in sent
        assert len(sent) < 8 * 1024
    found = pa.Table.from_batches([*pickle.loads(pickle.dumps(reader)).read(part)])
    assert found["id"].to_pylist() == [5, 6, 7, 8, 9]
    assert found["u"].to_pylist() == [str(u(n)) for n in range(5, 10)]


def test_filters_about_uuids_are_left_to_spark(spark: SparkSession, shop: Shop) -> None:
    text = f"u > '05z' and u like '0%' and not u <=> '{str(u(7)).upper()}' and id < 9"
    with conf(spark, **ON):
        frame = shop.load(spark, pushdown="true").where(text)
        assert ids(frame) == [6, 7, 8]
        (tested,) = [line for line in str(frame._jdf.queryExecution()).splitlines() if "Filter (" in line][
            -1:
        ]
        assert "StartsWith(u" in tested
        assert "id#" not in tested
        # A schema that is the table's own is no other.
        asked = spark.read.schema("id bigint, u string").format("skipstone")
        same = asked.options(catalog=str(shop.path), pushdown="true").load("db.t")
        assert same.where("u like '0%' and id > 7").count() == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"catalogue": "x"}, "unknown option catalogue"),
        ({"path": "db.nope"}, "has no such table"),
        ({"path": "t"}, "invalid table name 't'"),
        ({"where": "nope = 1"}, "nope"),
        ({"columns": "id,nope"}, "nope"),
        ({"snapshot": "nope"}, "unknown snapshot 'nope'"),
        ({"catalog": "nobody-knows-it"}, "unknown catalog 'nobody-knows-it'"),
        ({"catalog": "/no/such/warehouse"}, "/no/such/warehouse"),
    ],
)
def test_what_is_refused(shop: Shop, options: dict[str, str], words: str) -> None:
    with pytest.raises(SkipstoneError, match=words):
        shop.source(**options).schema()


def test_what_does_not_go_together(spark: SparkSession, shop: Shop) -> None:
    with pytest.raises(UsageError, match="directories have no snapshots"):
        SkipstoneSource({"path": str(shop.path), "snapshot": "1"}).schema()
    with pytest.raises(SkipstoneError, match=r"v9\.metadata\.json"):
        SkipstoneSource({"path": str(shop.path / "v9.metadata.json")}).schema()
    asked = spark.read.format("skipstone").schema("id bigint, other string")
    with pytest.raises(PySparkException, match="schema differs from the table"):
        asked.option("catalog", str(shop.path)).load("db.t").count()


# -- executors of their own --------------------------------------------------------------------

CLUSTER = """
import json, sys
from pathlib import Path
import skipstone as sk

folder = Path(sys.argv[1])

if __name__ == "__main__":
    from skipstone.scan import parts
    parts._OPEN_BYTES, parts._LEAST_BYTES = 0, 1
    conf = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    session = sk.spark("local-cluster[2,1,1024]", conf=conf)
    found = {}
    for name, path in json.loads((folder / "tables.json").read_text()).items():
        table = sk.open(path)
        load = lambda **options: session.read.format("skipstone").options(**options).load(path)
        scan, routes = table.scan(), ("driver", "slices", "auto")
        frames = {route: scan.to_spark(session, route=route) for route in routes}
        frames["option"] = load()
        frames["where"] = load(where="w > 3")
        frames["pushed"] = load(pushdown="true").where("w > 3")
        ids = lambda frame: sorted(frame.select("id").toArrow()["id"].to_pylist())
        found[name] = {way: ids(frame) for way, frame in frames.items()}
        found[name]["count"] = table.scan("w > 3").count(engine=session)
        found[name]["tasks"] = frames["slices"].rdd.getNumPartitions()
    session.stop()
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_two_executors(tmp_path: Path, table: Maker, vectors: Maker) -> None:
    makers = {"table": table, "vectors": vectors}
    places = {name: one.metadata_location for name, one in makers.items()}
    (tmp_path / "tables.json").write_text(json.dumps(places))
    found = run(CLUSTER, tmp_path)
    for name, one in makers.items():
        rows = one.table()
        pairs = zip(rows["id"].to_pylist(), rows["w"].to_pylist(), strict=True)
        some = sorted(n for n, w in pairs if w is not None and (w > 3 or math.isnan(w)))
        wanted = dict.fromkeys(("driver", "slices", "auto", "option"), live_ids(one))
        wanted |= {"where": some, "pushed": some}
        assert found[name] == {**wanted, "count": len(some), "tasks": found[name]["tasks"]}
        assert found[name]["tasks"] == 2
