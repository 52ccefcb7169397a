"""Read a TOML job file with sources, transforms and sinks, and check it before Spark starts.

`${NAME}` and `${NAME:-default}` in a string stand for a variable of the command line or the environment. An unknown key
is refused with a suggestion, and every error message names the place in the file.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from ..options import NAME

T = TypeVar("T")

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_MASTER: Final = re.compile(r"local(\[.+\]|-cluster\[.+\])?$|spark://.|yarn$|k8s://.")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|millisecond|second|minute|hour|day)s?")
_SECONDS: Final = {"ms": 0.001, "millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
AVAILABLE_NOW: Final = "available-now"

_OWN: Final = {"transactionalId": "they fence each other", "writeId": "only one of them is written"}
"""The options whose values sinks of one cluster must not share, with what happens if two sinks share a value."""

_KEYS: Final = {"sources": "source", "transforms": "transform", "sinks": "sink", "frame": "from"}
"""The keys in the job file of fields that have another name."""

METRICS: Final = "oncelog.json."
"""Prefix of the names of Spark's observed metrics that count the bad records and tombstones of a JSON source."""

BAD_RECORD: Final = "oncelog.pipeline.jobs.BadRecord: "
"""Prefix of the error message with which a bad record or tombstone ends a query.

It marks where this message begins in Spark's text.
"""


class JobError(ValueError):
    """The job cannot run as it is written, or has failed permanently. The message says where and what to do."""

    exit_code: ClassVar = 1
    """The exit code of `oncelog pipeline run`."""


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """How late rows may arrive, measured by a timestamp column."""

    column: str
    delay: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """An input frame, known to SQL by its name."""

    name: str
    format: str = NAME
    stream: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    json: str = ""
    """The columns of a JSON value, as DDL. They replace `value`, and the other columns become `_key`, `_offset`, …"""
    on_bad_record: str = "fail"
    """How to treat a record whose value is not JSON of these columns: end the query (fail), omit the record (drop) or
    make it a row (keep).
    """
    on_tombstone: str = "drop"
    """How to treat a record without a value: end the query (fail), omit the record (drop) or make it a row (keep)."""
    schema: str = ""
    """The columns of a file source, as DDL."""
    select: tuple[str, ...] = ()
    """SQL expressions to select instead of all columns."""
    watermark: Watermark | None = None


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A frame made from other frames: by SQL over their names, or by a Python function (spark, frames) → frame."""

    name: str
    sql: str = ""
    python: str = ""
    watermark: Watermark | None = None


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The destination of a frame. The job's checkpoint stores the position of a stream under the sink's name."""

    name: str
    frame: str
    format: str = NAME
    options: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    """SQL expression of the record's key. With `key` or `json`, the record's value is the row as JSON."""
    json: bool = False
    output_mode: str = "append"
    trigger: str = ""
    tasks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """The content of a job file."""

    name: str
    checkpoint: str
    sources: tuple[Source, ...]
    transforms: tuple[Transform, ...]
    sinks: tuple[Sink, ...]
    master: str = "local[*]"
    trigger: str = "1 second"
    max_restarts: int = 10
    restart_window: str = "10 minutes"
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of every oncelog source and sink."""
    spark: Mapping[str, str] = field(default_factory=dict)
    directory: Path = Path()
    """The directory of the job file, where Python transforms are searched for."""

    @property
    def restart_window_s(self) -> float:
        """The restart window in seconds."""
        return seconds(self.restart_window, "restart_window")


def load(path: Path, variables: Mapping[str, str] | None = None) -> Job:
    """Read and check a job file. Raises JobError."""
    try:
        text = path.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{path} is not TOML: {error}") from None
    return parse(_filled(raw, {**os.environ, **(variables or {})}, str(path)), str(path), path.resolve().parent)


def parse(raw: Mapping[str, Any], where: str, directory: Path) -> Job:
    """Check the content of a job file and return the job. Every error message begins with `where`. Raises JobError."""
    raw = dict(raw)
    sources = _tables(Source, raw.pop("source", []), f"{where}: source")
    transforms = _tables(Transform, raw.pop("transform", []), f"{where}: transform")
    sinks = _tables(Sink, raw.pop("sink", []), f"{where}: sink")
    job = _table(
        Job,
        {**raw, "source": sources, "transform": transforms, "sink": sinks},
        where,
        directory=directory,
    )
    _check(job, where)
    return job


def check_master(master: str) -> None:
    """Raise JobError if a string cannot be the URL of a Spark master. Spark itself would print a Java stack trace."""
    if master.startswith("sc://"):
        raise JobError(
            f"master = {master!r} is a Spark Connect server, which cannot run job files: a job needs a JVM of its "
            "own to stop its queries and read its checkpoints. Name the cluster's master (spark://, yarn, k8s://), or "
            "use oncelog.pipeline.write_stream in a program of your own, which works with Spark Connect"
        )
    if not _MASTER.match(master):
        raise JobError(
            f'master = {master!r} is not the URL of a Spark master, for example "local[*]", "spark://host:7077", '
            '"yarn" or "k8s://https://host:443"'
        )


def seconds(text: str, where: str) -> float:
    """Return a duration such as "10 seconds" in seconds. Raises JobError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise JobError(f'{where}: {text!r} is not a duration such as "10 seconds" or "5 minutes"')
    return float(found[1]) * _SECONDS[found[2]]


def _tables(cls: type[T], raw: Any, where: str) -> tuple[T, ...]:
    if not isinstance(raw, list):
        raise JobError(f"{where} is not a list of tables: write [[{where.rpartition(' ')[2]}]]")
    return tuple(_table(cls, one, where) for one in raw)


def _table(cls: type[T], raw: Any, where: str, **made: Any) -> T:
    """Return a TOML table of the job file as an instance of its dataclass. Raises JobError.

    `where` names the table in error messages. `made` has the values of fields that are not keys of the table.
    """
    if not isinstance(raw, Mapping):
        raise JobError(f"{where} is not a table")
    values = dict(raw)
    name = values.get("name")
    where = f"{where} {name!r}" if isinstance(name, str) and not made else where
    known = {_KEYS.get(one.name, one.name): one for one in fields(cls) if one.name not in made}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise JobError(
                f"{where}: there is no {key!r}; "
                f"{f'did you mean {near[0]}?' if near else 'choose one of ' + ', '.join(known)}"
            )
    for key in ("options", "spark", "watermark"):
        if not isinstance(values.get(key, {}), Mapping):
            raise JobError(f"{where}: {key} = {values[key]!r} is not a table")
    if "watermark" in values:
        values["watermark"] = _table(Watermark, values["watermark"], f"{where}: watermark")
    for key in ("options", "spark"):
        if key in values:
            values[key] = {name: _option(value, f"{where}: {key}: {name}") for name, value in _flat(values[key])}
    if "select" in values:
        select = values["select"]
        if not isinstance(select, list) or not all(isinstance(one, str) for one in select):
            raise JobError(f"{where}: select = {select!r} is not a list of SQL expressions")
        values["select"] = tuple(select)
    for key, value in values.items():
        expected = {"str": str, "bool": bool, "int": int, "int | None": int}.get(str(known[key].type))
        if expected is not None and type(value) is not expected:  # a boolean is no int here
            raise JobError(f"{where}: {key} = {value!r} is not of type {expected.__name__}")
    try:
        return cls(**{known[key].name: value for key, value in values.items()}, **made)
    except TypeError as error:
        missing = re.findall(r"'(\w+)'", str(error))
        raise JobError(f"{where}: {', '.join(_KEYS.get(one, one) for one in missing)} must be set") from None


def _flat(options: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return options as (dotted name, value). The file may have quoted names with dots, or nested tables."""
    found: list[tuple[str, Any]] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def _option(value: Any, where: str) -> str:
    """Return the value of an option as Spark expects it: as text. Raises JobError for tables and lists."""
    if not isinstance(value, str | bool | int | float):
        raise JobError(f"{where} = {value!r} is not a string, number or boolean")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(job: Job, where: str) -> None:
    """Raise JobError if parts of the job contradict each other or have invalid values."""
    if not job.checkpoint.strip():
        raise JobError(f"{where}: checkpoint has no value: name a directory")
    if not job.sources or not job.sinks:
        raise JobError(f"{where}: a job needs at least one [[source]] and one [[sink]]")
    known: set[str] = set()
    for name in (*(one.name for one in job.sources), *(one.name for one in job.transforms)):
        if not re.fullmatch(r"[A-Za-z]\w*", name):
            raise JobError(f"{where}: {name!r} is not a valid name in SQL: use letters, digits and _")
        if name in known:
            raise JobError(f"{where}: two frames have the name {name!r}: rename one")
        known.add(name)
    for source in job.sources:
        for key, policy in (("on_bad_record", source.on_bad_record), ("on_tombstone", source.on_tombstone)):
            if policy not in ("fail", "drop", "keep"):
                raise JobError(f"{where}: source {source.name!r}: {key} must be fail, drop or keep, not {policy!r}")
    for transform in job.transforms:
        if bool(transform.sql) == bool(transform.python):
            raise JobError(f"{where}: transform {transform.name!r} needs either sql or python")
    names = [sink.name for sink in job.sinks]
    for sink in job.sinks:
        if names.count(sink.name) > 1:
            raise JobError(f"{where}: two sinks have the name {sink.name!r} and so the same checkpoint: rename one")
        if not re.fullmatch(r"[\w-]+", sink.name):
            raise JobError(f"{where}: {sink.name!r} is not a valid name of a sink: use letters, digits, _ and -")
        if sink.frame not in known:
            raise JobError(
                f"{where}: sink {sink.name!r}: there is no frame {sink.frame!r}; choose one of {', '.join(known)}"
            )
        if sink.output_mode not in ("append", "update", "complete"):
            raise JobError(f"{where}: sink {sink.name!r}: output_mode must be append, update or complete")
        if sink.tasks is not None and sink.tasks < 1:
            raise JobError(f"{where}: sink {sink.name!r}: tasks must be at least 1, not {sink.tasks}")
        trigger = sink.trigger or job.trigger
        if trigger != AVAILABLE_NOW:
            seconds(trigger, f"{where}: trigger")
    _check_ids(job, where)
    if job.max_restarts < 0:
        raise JobError(f"{where}: max_restarts must be 0 or greater, not {job.max_restarts}")
    seconds(job.restart_window, f"{where}: restart_window")


def _check_ids(job: Job, where: str) -> None:
    """Raise JobError if two sinks write to one cluster with the same transactionalId or writeId."""
    sinks: dict[tuple[str, str, str], str] = {}
    for sink in job.sinks:
        if sink.format != NAME:
            continue
        options = {name.lower(): value.strip() for name, value in {**job.options, **sink.options}.items()}
        for option, why in _OWN.items():
            if value := options.get(option.lower()):
                key = (options.get("kafka.bootstrap.servers", ""), option, value)
                if (other := sinks.setdefault(key, sink.name)) != sink.name:
                    raise JobError(
                        f"{where}: sinks {other!r} and {sink.name!r} have {option} = {value!r}: give each sink its own "
                        f"in its options, or {why}"
                    )


def _filled(raw: Any, variables: Mapping[str, str], where: str) -> Any:
    """Return the content with its variables replaced. Raises JobError."""
    if isinstance(raw, str):
        return _VARIABLE.sub(lambda found: _value(found, variables, where), raw)
    if isinstance(raw, Mapping):
        return {name: _filled(value, variables, where) for name, value in raw.items()}
    if isinstance(raw, list):
        return [_filled(value, variables, where) for value in raw]
    return raw


def _value(found: re.Match[str], variables: Mapping[str, str], where: str) -> str:
    """Return the value of a variable, or its default. Raises JobError if it has neither."""
    value = variables.get(found[1], found[2])
    if value is None:
        raise JobError(
            f"{where}: ${{{found[1]}}} is not set: give --var {found[1]}=..., or a default ${{{found[1]}:-...}}"
        )
    return value
