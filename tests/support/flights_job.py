"""Prepare the flights job that ships with oncelog, on topics of one test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncelog.demo import flights
from oncelog.pipeline.jobs import spec

FLIGHTS_JOB = Path(spec.__file__).parent / "flights.toml"


def flights_variables(topics: Any, directory: Path, rows: int) -> dict[str, str]:
    """Send the first `rows` flights to the job's input, and return the values for its `--var` options."""
    names = {name: topics.make(name.lower()) for name in ("FLIGHTS", "CLEANED", "HOURLY", "LATEST")}
    topics.send(names["FLIGHTS"], [flights.flight_record(row)[1].decode() for row in flights.flights(rows)])
    return {
        **names,
        "BOOTSTRAP": topics.bootstrap,
        "CHECKPOINT": str(directory / "checkpoint"),
        "TABLES": str(flights.directory()),
        "PARQUET": str(directory / "parquet"),
        "LEAST": "20",
    }
