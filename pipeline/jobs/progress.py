"""Report the batches, rows, rate and lag of each query of a running job, as values, text and metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from .spec import METRICS

_COUNT: Final = r"(\d{1,3}(?:,\d{3})*)"
_LINE: Final = re.compile(
    rf"([\w-]+): batch (\d+), {_COUNT} rows in {_COUNT} ms, {_COUNT} rows/s(?:, lag {_COUNT})?"
    rf"(?:, {_COUNT} too late[^,]*)?(?:, {_COUNT} bad records)?(?:, {_COUNT} tombstones)?"
)


class Progress(NamedTuple):
    """One micro-batch of one query.

    `lag` is the number of unread offsets at the sources, or None if the sources do not report it. `late` is the number
    of rows that came too late for the watermark and were dropped. `bad` is the number of records of JSON sources whose
    value is not the expected JSON. `tombstones` is the number of records of JSON sources without a value.
    """

    query: str
    batch_id: int
    rows: int
    rows_per_second: float
    duration_ms: int
    lag: int | None
    late: int = 0
    bad: int = 0
    tombstones: int = 0

    def __str__(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        rate = f"{self.rows_per_second:,.0f} rows/s"
        late = f", {self.late:,} too late for the watermark: left out" if self.late else ""
        bad = f", {self.bad:,} bad records" if self.bad else ""
        tombstones = f", {self.tombstones:,} tombstones" if self.tombstones else ""
        rows = f"{self.query}: batch {self.batch_id}, {self.rows:,} rows in {self.duration_ms:,} ms, {rate}"
        return f"{rows}{lag}{late}{bad}{tombstones}"

    @classmethod
    def read(cls, line: str) -> Progress | None:
        """Parse a line that is the `str()` of a Progress. Return None for any other line."""
        found = _LINE.match(line)
        if found is None:
            return None
        batch, rows, duration, rate, lag, late, bad, tombstones = (_number(found[n]) for n in range(2, 10))
        assert batch is not None
        assert rows is not None
        return cls(found[1], batch, rows, float(rate or 0), duration or 0, lag, late or 0, bad or 0, tombstones or 0)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text.replace(",", ""))


def progress_of(query: str, report: Mapping[str, Any]) -> Progress:
    """Convert Spark's progress report of a micro-batch, already parsed from JSON."""
    lags = [_lag(source) for source in report["sources"]]
    known = [lag for lag in lags if lag is not None]
    counted = [counts for name, counts in report.get("observedMetrics", {}).items() if name.startswith(METRICS)]
    return Progress(
        query,
        int(report["batchId"]),
        int(report["numInputRows"]),
        float(report.get("processedRowsPerSecond") or 0.0),
        int(report["durationMs"].get("triggerExecution", 0)),
        sum(known) if known else None,
        sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in report.get("stateOperators", ())),
        sum(int(one["bad"] or 0) for one in counted),
        sum(int(one["tombstones"] or 0) for one in counted),
    )


def _lag(source: Mapping[str, Any]) -> int | None:
    """Return the number of unread offsets at a source, or None if the source does not report its latest offsets."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if not latest:
        return None
    return sum(max(offset - end.get(partition, 0), 0) for partition, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int]:
    """Return the offsets in JSON such as `{"topic": {"0": 23}}`, which may be text or already parsed.

    Return no offsets for any other value.
    """
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return {(topic, one): int(offset) for topic, some in parsed.items() for one, offset in some.items()}
    except (ValueError, AttributeError, TypeError):
        return {}


class JobMetrics:
    """The job's metrics in a separate registry. docs/pipeline.md lists them.

    The counters of the named queries begin with 0.
    """

    def __init__(self, queries: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        labels = ["query"]
        self._rows = Counter("oncelog_pipeline_rows", "Rows read.", labels, registry=self.registry)
        self._batches = Counter("oncelog_pipeline_batches", "Micro-batches done.", labels, registry=self.registry)
        self._batch = Gauge("oncelog_pipeline_batch", "Number of the last batch.", labels, registry=self.registry)
        self._rate = Gauge("oncelog_pipeline_rows_per_second", "Rate of the batch.", labels, registry=self.registry)
        self._lag = Gauge("oncelog_pipeline_lag", "Unread offsets at the sources.", labels, registry=self.registry)
        self._late = Counter(
            "oncelog_pipeline_late_rows",
            "Rows dropped because they came too late for the watermark.",
            labels,
            registry=self.registry,
        )
        self._bad = Counter(
            "oncelog_pipeline_bad_records",
            "Records whose value is not the expected JSON.",
            labels,
            registry=self.registry,
        )
        self._tombstones = Counter(
            "oncelog_pipeline_tombstones", "Records of JSON sources without a value.", labels, registry=self.registry
        )
        self._restarts = Counter("oncelog_pipeline_restarts", "Restarts of queries.", labels, registry=self.registry)
        for query in queries:
            for counter in (self._rows, self._batches, self._late, self._bad, self._tombstones, self._restarts):
                counter.labels(query)

    def batch(self, progress: Progress) -> None:
        """Count a micro-batch."""
        self._rows.labels(progress.query).inc(progress.rows)
        self._batches.labels(progress.query).inc()
        self._late.labels(progress.query).inc(progress.late)
        self._bad.labels(progress.query).inc(progress.bad)
        self._tombstones.labels(progress.query).inc(progress.tombstones)
        self._batch.labels(progress.query).set(progress.batch_id)
        self._rate.labels(progress.query).set(progress.rows_per_second)
        if progress.lag is not None:
            self._lag.labels(progress.query).set(progress.lag)

    def restarted(self, query: str) -> None:
        """Count a restart of a query."""
        self._restarts.labels(query).inc()
