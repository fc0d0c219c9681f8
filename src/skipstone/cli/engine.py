"""Where work is done: the options that tell, and what they mean together."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import storage_options
from skipstone.cli.output import guarded
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORK = "Working"


class EngineName(enum.StrEnum):
    """Where the work is done."""

    SPARK = "spark"
    LOCAL = "local"


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="spark: on a Spark cluster, or on one of its own; local: on threads of this process.",
        rich_help_panel=_WORK,
    ),
]
JobThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        help="Threads of the local engine; by default one per core.",
        rich_help_panel=_WORK,
    ),
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Spark that is meant."""

    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="The Spark master, such as spark://host:7077; by default as Spark is set up, else local[*].",
            rich_help_panel=_WORK,
        ),
    ] = None
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote",
            metavar="URL",
            help="A Spark Connect server instead, such as sc://host:15002.",
            rich_help_panel=_WORK,
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.", rich_help_panel=_WORK
        ),
    ] = None

    def refuse(self, unless: str) -> None:
        """Refuse its options, which make sense with another one only."""
        for option, value in (("--master", self.master), ("--remote", self.remote), ("--conf", self.conf)):
            if value is not None:
                raise typer.BadParameter(f"that is for {unless}", param_hint=option)

    def arguments(self) -> dict[str, Any]:
        """What ``sk.spark`` takes."""
        if self.master is not None and self.remote is not None:
            raise typer.BadParameter("give --master or --remote, not both", param_hint="--remote")
        conf = storage_options(self.conf, "--conf") or None
        return {"master": self.master, "remote": self.remote, "conf": conf}

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A session, which is stopped in the end unless it was running before."""
        from skipstone.engine.spark import open_spark

        with open_spark(**self.arguments()) as engine:
            yield engine.session


def engine_arguments(engine: EngineName, cluster: Cluster, threads: int | None) -> dict[str, Any]:
    """What ``open_engine`` takes; options that make no sense together are refused."""
    if engine is EngineName.LOCAL:
        cluster.refuse("--engine spark")
        return {"engine": "local", "threads": threads}
    if threads is not None:
        raise typer.BadParameter(
            "that is for --engine local; Spark has --master 'local[N]'", param_hint="--threads"
        )
    return {"engine": "spark", **cluster.arguments()}


@contextmanager
def job_guarded(*, spark_only: bool = False) -> Iterator[None]:
    """As every command; what errors say of Python's arguments is said of options."""
    with guarded():
        try:
            yield
        except SkipstoneError as error:
            error.hint = _as_options(error.hint, spark_only=spark_only) if error.hint else None
            raise


# What a hint says of the local engine, where there is none.
_LOCAL = re.compile(r'(; |, or use )?engine="local"( needs \w+( \w+)?)?')
_ARGUMENT = re.compile(
    r'\b(engine|route|format|columns|id_column|group_by)=(?:"(\w+)")?|\b(partition_by|cluster_by)\b'
)


def _as_options(hint: str, *, spark_only: bool) -> str | None:
    text = _LOCAL.sub("", hint) if spark_only else hint
    return _ARGUMENT.sub(_option, text) or None


def _option(found: re.Match[str]) -> str:
    name, value, bare = found.groups()
    # A command's own --format is that of its output.
    option = "input-format" if name == "format" else (name or bare).replace("_", "-")
    return f"--{option} {value}" if value else f"--{option}"
