"""Count the metrics that a table defines. Prometheus' text format and docs/metrics.md are made from that table.

A `Metrics` object owns the numbers of one broker. Counting updates a dict. prometheus-client, whose import costs time
and memory, is loaded only when metrics are read (`registry`, `exposition`). It reads the numbers through a collector in
a separate registry, so that two brokers in one process have separate numbers. This module opens no socket;
`network/metrics_listener.py` does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds in seconds of a histogram's buckets. One more bucket has no bound."""


class Kind(Enum):
    """The kind of a metric: counter, gauge or histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric of the table; a counter's name ends in `_total`, and a histogram's name ends in its unit."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


FENCES: Final = "oncelog_transaction_fences_total"
ENDED: Final = "oncelog_transactions_ended_total"
OPENED: Final = "oncelog_transactions_opened_total"
INITIALISATIONS: Final = "oncelog_producer_initialisations_total"
REFUSED: Final = "oncelog_transaction_requests_refused_total"
WAITS: Final = "oncelog_transaction_wait_seconds"
PARKED: Final = "oncelog_transaction_requests_parked"
EXPIRED: Final = "oncelog_transactional_ids_expired_total"
KNOWN_IDS: Final = "oncelog_transactional_ids"
CLAIMS_MADE: Final = "oncelog_group_claims_made_total"
CLAIMS_DROPPED: Final = "oncelog_group_claims_dropped_total"
CLAIMED: Final = "oncelog_group_claimed_partitions"
PARKED_IN_GROUPS: Final = "oncelog_group_initialisations_parked"
OLDEST_FLUSH: Final = "oncelog_oldest_flush_seconds"

METRICS: Final = (
    Metric(OPENED, Kind.COUNTER, (), "Transactions that were started: their first partition was registered."),
    Metric(
        ENDED,
        Kind.COUNTER,
        ("result", "reason"),
        "Transactions that were committed or aborted, by result (`commit` or `abort`) and reason (the request, or the"
        " action of the broker, that ended them).",
    ),
    Metric(
        FENCES,
        Kind.COUNTER,
        ("reason",),
        "Producers that were fenced: their epoch was raised by another instance, another producer of the group, a"
        " timeout or an operator.",
    ),
    Metric(
        INITIALISATIONS,
        Kind.COUNTER,
        ("kind",),
        "InitProducerId requests with a transactional id, by kind: `new` (a new instance) or `recovered` (the"
        " producer raised its own epoch).",
    ),
    Metric(
        REFUSED,
        Kind.COUNTER,
        ("request", "code"),
        "Requests of transactional producers that were refused, by request and error code.",
    ),
    Metric(
        WAITS,
        Kind.HISTOGRAM,
        ("request", "outcome"),
        "The time for which requests waited for the end of the previous transaction. The outcome is `done`, `gave_up`"
        " (answered with CONCURRENT_TRANSACTIONS) or `closed` (the connection was closed).",
    ),
    Metric(PARKED, Kind.GAUGE, (), "Requests that currently wait for the end of a previous transaction."),
    Metric(EXPIRED, Kind.COUNTER, (), "Transactional ids deleted after transactional.id.expiration.ms without use."),
    Metric(KNOWN_IDS, Kind.GAUGE, (), "Transactional ids that the broker knows."),
    Metric(CLAIMS_MADE, Kind.COUNTER, (), "Group-aware InitProducerId requests that claimed their partitions."),
    Metric(
        CLAIMS_DROPPED,
        Kind.COUNTER,
        ("reason",),
        "Events that dropped claims of a group, by reason: for example, the group was deleted, or its last member"
        " left.",
    ),
    Metric(CLAIMED, Kind.GAUGE, (), "Partitions of groups that a producer currently claims."),
    Metric(
        PARKED_IN_GROUPS,
        Kind.GAUGE,
        (),
        "Group-aware InitProducerId requests and operators' requests to drop claims that currently wait, either for an"
        " earlier request of the same group or (InitProducerId only) until other producers are fenced.",
    ),
    Metric(
        OLDEST_FLUSH,
        Kind.GAUGE,
        (),
        "The age of the oldest running flush of a log, including waits for space or descriptors; 0 if none is running.",
    ),
)
"""All metrics of the broker."""

_BY_NAME: Final = {metric.name: metric for metric in METRICS}


class _Observations:
    """The number of observations in each bucket of one histogram, and the sum of the observations."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.total = 0.0


class Metrics:
    """The metrics of one broker. All methods are called on the event loop's thread."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, tuple[str, ...]], float] = {}
        self._observations: dict[tuple[str, tuple[str, ...]], _Observations] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._registry: CollectorRegistry | None = None

    def count(self, name: str, *labels: str, amount: float = 1) -> None:
        """Add `amount` to a counter; `labels` are the labels' values in the table's order."""
        key = (name, labels)
        self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add an observation of `seconds` to a histogram."""
        key = (name, labels)
        seen = self._observations.get(key)
        if seen is None:
            seen = self._observations[key] = _Observations()
        seen.buckets[bisect_left(SECONDS, seconds)] += 1
        seen.total += seconds

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Set the function that returns a gauge's value when metrics are read."""
        assert _BY_NAME[name].kind is Kind.GAUGE, name
        self._gauges[name] = read

    def value(self, name: str, *labels: str) -> float:
        """Return the value of a counter or gauge, or the number of observations of a histogram."""
        kind = _BY_NAME[name].kind
        if kind is Kind.GAUGE:
            return self._gauges[name]() if name in self._gauges else 0
        if kind is Kind.HISTOGRAM:
            seen = self._observations.get((name, labels))
            return 0 if seen is None else sum(seen.buckets)
        return self._counts.get((name, labels), 0)

    @property
    def registry(self) -> CollectorRegistry:
        """This broker's registry of prometheus-client, created at the first access."""
        if self._registry is None:
            from prometheus_client import CollectorRegistry

            self._registry = CollectorRegistry()
            self._registry.register(self)
        return self._registry

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format 0.0.4."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def describe(self) -> Iterator[Any]:
        """Return no metrics. Otherwise the registry would read all values when the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """Return one metric family for each row of the table; prometheus-client's registry calls this."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            if metric.kind is Kind.GAUGE:
                yield GaugeMetricFamily(metric.name, metric.help, value=self.value(metric.name))
            elif metric.kind is Kind.COUNTER:
                counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
                for labels, count in self._of(metric, self._counts):
                    counter.add_metric(labels, count)
                yield counter
            else:
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                for labels, seen in self._of(metric, self._observations):
                    histogram.add_metric(labels, _cumulative(seen), seen.total)
                yield histogram

    @staticmethod
    def _of(metric: Metric, numbers: dict[tuple[str, tuple[str, ...]], Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
        found = [(labels, number) for (name, labels), number in numbers.items() if name == metric.name]
        if not found and not metric.labels and metric.kind is Kind.COUNTER:
            found = [((), 0)]
        return iter(sorted(found, key=lambda row: row[0]))


def _cumulative(seen: _Observations) -> list[tuple[str, float]]:
    below, rows = 0, []
    for bound, count in zip((*map(str, SECONDS), "+Inf"), seen.buckets, strict=True):
        below += count
        rows.append((bound, float(below)))
    return rows


_PAGE: Final = """\
# Metrics

This page describes the broker's metrics, its health check and the log lines about producers. Connect workers have
[metrics of their own](connect-metrics.md).

If `metrics.listener` is set, for example to `127.0.0.1:9404`, the broker answers `GET /metrics` at this address in
Prometheus' text format, and `GET /health`. [TLS and credentials](operations.md#who-may-read-metrics-and-health) can
protect both. The listener opens when the coordinators have read their logs. Until then, connections are refused.

## Health

`GET /health` is answered with 200, or with 503 and the reason if one of these conditions holds:

* The data directory has failed.
* A flush of a log takes longer than `health.flush.max.ms`, for example because the disk is full or does not
  respond. With `durability=os`, the check reports such a flush, too, although no producer waits for it.
* The broker cannot write and sync a small file, `.health-probe`, in the data directory within
  `health.probe.timeout.ms`. This *probe* detects a disk that does not respond even if the broker receives no records.
  At most one probe begins per `health.probe.interval.ms`, and at most one runs at a time. Checks in between get the
  result of the last probe.
* The broker is stopping.

A broker whose event loop is blocked answers late, so give a health check a time limit. Single partitions that are
offline or read-only do not make a broker unhealthy; the log names them.

Without `--url`, `oncelog health` uses Kafka's protocol instead of `GET /health`. It checks that the broker answers,
that its data directory has not failed and that the probe succeeds. It does not check flushes.

## Log lines

Each fence, abort, expiry, claim, wait, refusal and initialisation that a metric counts also has a line in the log. The
line contains the reason. If a request caused the event, it also contains the request and the client (id and host).
Lines about a producer contain its epochs before and after the event. Starts and commits of transactions are too
frequent, so they are counted, but not logged.

If one kind of event has more than `logging.max.lines.per.second` lines per second, the log suppresses and counts the
others. The metrics still count every event. Waits of up to 100 ms are normal, and are logged at level debug.

## All metrics

| name | kind | labels | meaning |
|---|---|---|---|
{rows}
"""


def metrics_markdown() -> str:
    """Return the text of docs/metrics.md."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |")
    return _PAGE.format(rows="\n".join(rows))
