"""Exposes a worker's metrics to Prometheus, with Kafka Connect's names and meanings.

The attribute `source-record-poll-total` of `kafka.connect:type=source-task-metrics` becomes the metric
`kafka_connect_source_task_source_record_poll_total` with the labels `connector` and `task`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from ..stores.ids import ConnectorTaskId
from ..stores.status_records import State
from ..task.task_metrics import TaskMetrics, Window

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """One row of the table of metrics: its name, Prometheus type, labels and help text."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


_TASK: Final = ("connector", "task")
_SOURCE: Final = "kafka_connect_source_task_"
_CONNECTOR_TASK: Final = "kafka_connect_connector_task_"
_ERROR: Final = "kafka_connect_task_error_"
_WORKER: Final = "kafka_connect_worker_"
REBALANCE: Final = "kafka_connect_worker_rebalance_"
_COUNTER, _GAUGE = "counter", "gauge"
_UNTYPED: Final = "untyped"
"""The Prometheus type of a count whose name, taken from Kafka Connect, lacks the suffix _total."""

METRICS: Final = (
    Metric(f"{_SOURCE}source_record_poll_total", _COUNTER, _TASK, "Records that the task has polled."),
    Metric(f"{_SOURCE}source_record_poll_rate", _GAUGE, _TASK, "Records per second that the task polls."),
    Metric(
        f"{_SOURCE}source_record_write_total", _COUNTER, _TASK,
        "Records written and committed, not counting those that transforms or errors.tolerance dropped.",
    ),
    Metric(f"{_SOURCE}source_record_write_rate", _GAUGE, _TASK, "Records written and committed per second."),
    Metric(f"{_SOURCE}source_record_active_count", _GAUGE, _TASK, "Records polled but not yet written and committed."),
    Metric(f"{_SOURCE}source_record_active_count_avg", _GAUGE, _TASK, "Mean number of records not committed yet."),
    Metric(f"{_SOURCE}source_record_active_count_max", _GAUGE, _TASK, "Largest number of records not committed yet."),
    Metric(f"{_SOURCE}poll_batch_avg_time_ms", _GAUGE, _TASK, "Mean duration of a poll that returns records."),
    Metric(f"{_SOURCE}poll_batch_max_time_ms", _GAUGE, _TASK, "Longest duration of a poll that returns records."),
    Metric(
        f"{_SOURCE}transaction_size_min", _GAUGE, _TASK,
        "Smallest number of records in a transaction or offset commit.",
    ),
    Metric(
        f"{_SOURCE}transaction_size_max", _GAUGE, _TASK,
        "Largest number of records in a transaction or offset commit.",
    ),
    Metric(
        f"{_SOURCE}transaction_size_avg", _GAUGE, _TASK,
        "Mean number of records in a transaction or offset commit.",
    ),
    Metric(f"{_CONNECTOR_TASK}status", _GAUGE, (*_TASK, "status"), "Always 1; `status` is the task's current state."),
    Metric(f"{_CONNECTOR_TASK}running_ratio", _GAUGE, _TASK, "Share of time that the task was running, 0–1."),
    Metric(f"{_CONNECTOR_TASK}pause_ratio", _GAUGE, _TASK, "Share of time that the task was paused, 0–1."),
    Metric(f"{_CONNECTOR_TASK}batch_size_avg", _GAUGE, _TASK, "Mean number of records in a batch."),
    Metric(f"{_CONNECTOR_TASK}batch_size_max", _GAUGE, _TASK, "Largest number of records in a batch."),
    Metric(f"{_CONNECTOR_TASK}offset_commit_avg_time_ms", _GAUGE, _TASK, "Mean duration of an offset commit."),
    Metric(f"{_CONNECTOR_TASK}offset_commit_max_time_ms", _GAUGE, _TASK, "Longest duration of an offset commit."),
    Metric(
        f"{_CONNECTOR_TASK}offset_commit_success_percentage", _GAUGE, _TASK,
        "Share of offset commits that succeeded, 0–1.",
    ),
    Metric(
        f"{_CONNECTOR_TASK}offset_commit_failure_percentage", _GAUGE, _TASK,
        "Share of offset commits that failed, 0–1.",
    ),
    Metric(f"{_ERROR}total_record_failures", _UNTYPED, _TASK, "Failed attempts to process a record."),
    Metric(f"{_ERROR}total_record_errors", _UNTYPED, _TASK, "Records that made the task fail."),
    Metric(f"{_ERROR}total_records_skipped", _UNTYPED, _TASK, "Records skipped because of errors.tolerance."),
    Metric(f"{_ERROR}total_retries", _UNTYPED, _TASK, "Repeated attempts to process a record."),
    Metric(f"{_ERROR}total_errors_logged", _UNTYPED, _TASK, "Logged failures to process a record."),
    Metric(
        f"{_ERROR}last_error_timestamp", _GAUGE, _TASK,
        "Time of the last failure, in ms since the epoch; 0 if nothing has failed.",
    ),
    Metric(
        "kafka_connect_connector_info", _GAUGE,
        ("connector", "connector_class", "connector_type", "connector_version"),
        "Always 1; the labels describe the connector.",
    ),
    Metric(
        "kafka_connect_connector_status", _GAUGE, ("connector", "status"),
        "Always 1; `status` is the connector's current state.",
    ),
    Metric(f"{_WORKER}connector_count", _GAUGE, (), "Number of connectors on this worker."),
    Metric(f"{_WORKER}task_count", _GAUGE, (), "Number of tasks on this worker."),
    Metric(f"{_WORKER}connector_startup_attempts_total", _COUNTER, (), "Attempts to start a connector."),
    Metric(f"{_WORKER}connector_startup_success_total", _COUNTER, (), "Connector starts that succeeded."),
    Metric(f"{_WORKER}connector_startup_failure_total", _COUNTER, (), "Connector starts that failed."),
    Metric(
        f"{_WORKER}connector_startup_success_percentage", _GAUGE, (),
        "Share of connector starts that succeeded, 0–1."
    ),
    Metric(
        f"{_WORKER}connector_startup_failure_percentage", _GAUGE, (),
        "Share of connector starts that failed, 0–1."
    ),
    Metric(f"{_WORKER}task_startup_attempts_total", _COUNTER, (), "Attempts to start a task."),
    Metric(f"{_WORKER}task_startup_success_total", _COUNTER, (), "Task starts that succeeded."),
    Metric(f"{_WORKER}task_startup_failure_total", _COUNTER, (), "Task starts that failed."),
    Metric(f"{_WORKER}task_startup_success_percentage", _GAUGE, (), "Share of task starts that succeeded, 0–1."),
    Metric(f"{_WORKER}task_startup_failure_percentage", _GAUGE, (), "Share of task starts that failed, 0–1."),
    Metric(
        f"{_WORKER}connector_task_count", _GAUGE, ("connector", "status"),
        "Number of the connector's tasks on this worker that have this status.",
    ),
    Metric(
        f"{REBALANCE}connect_protocol", _GAUGE, ("connect_protocol",),
        "Always 1; the label is the group's protocol.",
    ),
    Metric(
        f"{REBALANCE}leader_name", _GAUGE, ("leader_name",),
        "Always 1; the label is the address of the group's leader.",
    ),
    Metric(f"{REBALANCE}epoch", _GAUGE, (), "The generation of the group."),
    Metric(
        f"{REBALANCE}rebalancing", _GAUGE, (),
        "1 from an assignment until this worker has started the assigned work, otherwise 0.",
    ),
    Metric(f"{REBALANCE}completed_rebalances_total", _COUNTER, (), "Rebalances that this worker has completed."),
    Metric(
        f"{REBALANCE}rebalance_avg_time_ms", _GAUGE, (),
        "Mean time from an assignment until this worker has started the assigned work.",
    ),
    Metric(
        f"{REBALANCE}rebalance_max_time_ms", _GAUGE, (),
        "Longest time from an assignment until this worker has started the assigned work.",
    ),
    Metric(
        f"{REBALANCE}time_since_last_rebalance_ms", _GAUGE, (),
        "Time since the last completed rebalance; +Inf before the first.",
    ),
)  # fmt: skip
"""The metrics that a worker exposes."""

_STATES: Final = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED)

Sample = tuple[str, tuple[str, ...], float]
"""A metric's name, the values of its labels, and its value."""

Samples = Iterator[Sample]


class Start:
    """One attempt to start a connector or task; its outcome is counted once."""

    def __init__(self, starts: Starts) -> None:
        self._starts: Starts | None = starts

    def ended(self, *, success: bool) -> None:
        """Count the outcome of the first call; ignore later calls."""
        starts, self._starts = self._starts, None
        if starts is not None:
            starts.successes += success
            starts.failures += not success
            starts.outcomes.record(success)


class Starts:
    """Counts the attempts to start connectors or tasks, and their outcomes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.attempts = self.successes = self.failures = 0
        self.outcomes = Window(clock)
        """1 for each success, 0 for each failure."""

    def begin(self) -> Start:
        """Count an attempt; the returned object counts its outcome."""
        self.attempts += 1
        return Start(self)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Count the block as an attempt, which fails if the block raises."""
        start = self.begin()
        try:
            yield
        except BaseException:
            start.ended(success=False)
            raise
        start.ended(success=True)


class MeasuredConnector(Protocol):
    """The attributes of a connector that the metrics show."""

    name: str
    state: State
    config: Mapping[str, str]

    @property
    def connector(self) -> Any:
        """The connector itself; the metrics show its version."""


def exposition(
    connectors: Iterable[MeasuredConnector],
    tasks: Mapping[ConnectorTaskId, TaskMetrics],
    connector_starts: Starts,
    task_starts: Starts,
    others: Iterable[Sample] = (),
) -> str:
    """Return all metrics, including the samples of `others`, in Prometheus' text format."""
    samples: dict[str, list[str]] = {metric.name: [] for metric in METRICS}
    names = {metric.name: metric.labels for metric in METRICS}
    for name, labels, value in (*_samples(list(connectors), tasks, connector_starts, task_starts), *others):
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in zip(names[name], labels, strict=True))
        samples[name].append(f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}")
    lines = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *samples[metric.name]]
    return "\n".join(lines) + "\n"


def _samples(
    connectors: list[MeasuredConnector],
    tasks: Mapping[ConnectorTaskId, TaskMetrics],
    connector_starts: Starts,
    task_starts: Starts,
) -> Samples:
    yield f"{_WORKER}connector_count", (), len(connectors)
    yield f"{_WORKER}task_count", (), len(tasks)
    for kind, starts in (("connector", connector_starts), ("task", task_starts)):
        yield f"{_WORKER}{kind}_startup_attempts_total", (), starts.attempts
        yield f"{_WORKER}{kind}_startup_success_total", (), starts.successes
        yield f"{_WORKER}{kind}_startup_failure_total", (), starts.failures
        yield f"{_WORKER}{kind}_startup_success_percentage", (), starts.outcomes.average
        yield f"{_WORKER}{kind}_startup_failure_percentage", (), 1 - starts.outcomes.average
    for each in connectors:
        info = (each.name, each.config["connector.class"], "source", str(each.connector.version()))
        yield "kafka_connect_connector_info", info, 1
        yield "kafka_connect_connector_status", (each.name, each.state.value.lower()), 1
    for connector in sorted({task.connector for task in tasks}):
        for state in _STATES:
            count = sum(task.connector == connector and each.state is state for task, each in tasks.items())
            yield f"{_WORKER}connector_task_count", (connector, state.value.lower()), count
    for task, metrics in tasks.items():
        for name, value in _of_task(metrics):
            yield name, (task.connector, str(task.task)), value
        yield f"{_CONNECTOR_TASK}status", (task.connector, str(task.task), metrics.state.value.lower()), 1


def _of_task(task: TaskMetrics) -> Iterator[tuple[str, float]]:
    yield f"{_SOURCE}source_record_poll_total", task.polled_total
    yield f"{_SOURCE}source_record_poll_rate", task.polled.rate
    yield f"{_SOURCE}source_record_write_total", task.written_total
    yield f"{_SOURCE}source_record_write_rate", task.written.rate
    yield f"{_SOURCE}source_record_active_count", task.active
    yield f"{_SOURCE}source_record_active_count_avg", task.active_counts.average
    yield f"{_SOURCE}source_record_active_count_max", task.active_counts.maximum
    yield f"{_SOURCE}poll_batch_avg_time_ms", task.poll_times_ms.average
    yield f"{_SOURCE}poll_batch_max_time_ms", task.poll_times_ms.maximum
    yield f"{_SOURCE}transaction_size_min", task.transaction_sizes.minimum
    yield f"{_SOURCE}transaction_size_max", task.transaction_sizes.maximum
    yield f"{_SOURCE}transaction_size_avg", task.transaction_sizes.average
    yield f"{_CONNECTOR_TASK}running_ratio", task.ratio(State.RUNNING)
    yield f"{_CONNECTOR_TASK}pause_ratio", task.ratio(State.PAUSED)
    yield f"{_CONNECTOR_TASK}batch_size_avg", task.batch_sizes.average
    yield f"{_CONNECTOR_TASK}batch_size_max", task.batch_sizes.maximum
    yield f"{_CONNECTOR_TASK}offset_commit_avg_time_ms", task.commit_times_ms.average
    yield f"{_CONNECTOR_TASK}offset_commit_max_time_ms", task.commit_times_ms.maximum
    yield f"{_CONNECTOR_TASK}offset_commit_success_percentage", task.commit_outcomes.average
    yield f"{_CONNECTOR_TASK}offset_commit_failure_percentage", 1 - task.commit_outcomes.average
    errors = task.errors
    yield f"{_ERROR}total_record_failures", errors.failures
    yield f"{_ERROR}total_record_errors", errors.errors
    yield f"{_ERROR}total_records_skipped", errors.skipped
    yield f"{_ERROR}total_retries", errors.retries
    yield f"{_ERROR}total_errors_logged", errors.logged
    yield f"{_ERROR}last_error_timestamp", errors.last_timestamp_ms


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    return "+Inf" if value == float("inf") else repr(value + 0)


def metrics_markdown() -> str:
    """Return the text of docs/connect-metrics.md."""
    rows = (
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.help} |"
        for metric in METRICS
    )
    return "\n".join([_PAGE, *rows, ""])


_PAGE: Final = """# Metrics of a connect worker

`GET /metrics` on a worker's REST interface returns metrics about the worker, its group, and the connectors and tasks
that it runs, in Prometheus' text format. The metrics are those of Kafka Connect, and their names are derived from Kafka
Connect's: for example, the attribute `source-record-poll-total` of `kafka.connect:type=source-task-metrics` becomes
`kafka_connect_source_task_source_record_poll_total`.

Rates, means, maxima, minima and percentages cover the last 30 to 60 seconds. If nothing was measured in that time, a
rate is 0, and each of the others is NaN. The ratios cover the time since the task's start. Values of percentages and
ratios are from 0 to 1. Counters whose names do not end with `_total` have the kind untyped. A standalone worker has no
values for the metrics `kafka_connect_worker_rebalance_*`, because it has no group.

| name | kind | labels | meaning |
|---|---|---|---|"""
