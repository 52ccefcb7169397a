"""What a worker counts, and the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from oncelog.connect import ConnectError
from oncelog.connect.connectors.heartbeat.connector import HeartbeatSourceConnector
from oncelog.connect.herder.rebalance_metrics import RebalanceMetrics
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.status_records import State
from oncelog.connect.task.task_metrics import SAMPLE_S, ErrorMetrics, TaskMetrics, Window
from oncelog.connect.worker.metrics import METRICS, Starts, exposition
from prometheus_client.parser import text_string_to_metric_families


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Connector:
    name = 'a"b'
    state = State.RUNNING
    config: Mapping[str, str] = {"connector.class": "HeartbeatSource"}
    connector = HeartbeatSourceConnector()


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_window_knows_the_last_minute() -> None:
    clock = Clock()
    window = Window(clock)
    assert (window.rate, str(window.average), str(window.maximum)) == (0.0, "nan", "nan")
    for value in (10, 20):
        window.record(value)
    clock.now += SAMPLE_S
    window.record(60)
    assert (window.average, window.maximum, window.minimum, window.rate) == (30.0, 60, 10, 3.0)
    clock.now += SAMPLE_S + 1
    assert (window.average, window.maximum) == (60.0, 60)
    clock.now += SAMPLE_S
    assert (window.rate, str(window.minimum)) == (0.0, "nan")


def test_a_task_counts_what_it_polls_writes_and_drops() -> None:
    clock = Clock()
    metrics = TaskMetrics(ErrorMetrics(), clock)
    metrics.state_changed(State.RUNNING)
    metrics.poll_ended(3, 0.5)
    for dropped in (False, False, True):
        metrics.sent(dropped=dropped)
    assert (metrics.polled_total, metrics.written_total, metrics.active, metrics.pending) == (3, 0, 3, True)
    metrics.committed()
    metrics.committed()  # without records
    metrics.commit_ended(0.25, success=True)
    clock.now += 30
    metrics.state_changed(State.PAUSED)
    clock.now += 10
    text = exposition([Connector()], {ConnectorTaskId("c", 0): metrics}, Starts(), Starts())
    read = values(text)
    task = (("connector", "c"), ("task", "0"))
    source = "kafka_connect_source_task_"
    assert read[f"{source}source_record_poll_total", task] == 3
    assert read[f"{source}source_record_write_total", task] == 2
    assert read[f"{source}source_record_active_count", task] == 0
    assert read[f"{source}source_record_active_count_max", task] == 3
    assert read[f"{source}source_record_poll_rate", task] == 3 / 70
    assert read[f"{source}transaction_size_avg", task] == 2
    assert read[f"{source}poll_batch_max_time_ms", task] == 500
    assert read["kafka_connect_connector_task_offset_commit_max_time_ms", task] == 250
    assert read["kafka_connect_connector_task_offset_commit_success_percentage", task] == 1
    assert read["kafka_connect_connector_task_running_ratio", task] == 0.75
    assert read["kafka_connect_connector_task_pause_ratio", task] == 0.25
    assert read["kafka_connect_connector_task_status", (*task[:1], ("status", "paused"), *task[1:])] == 1
    assert read["kafka_connect_connector_status", (("connector", 'a"b'), ("status", "running"))] == 1
    assert read["kafka_connect_worker_connector_count", ()] == 1


def test_starts_have_one_outcome_each() -> None:
    starts = Starts()
    with starts.attempt():
        pass
    with pytest.raises(ConnectError), starts.attempt():
        raise ConnectError("no")
    start = starts.begin()
    start.ended(success=True)
    start.ended(success=False)
    assert (starts.attempts, starts.successes, starts.failures) == (3, 2, 1)
    assert starts.outcomes.average == 2 / 3


def test_a_rebalance_takes_from_the_assignment_to_the_start_of_the_work() -> None:
    clock = Clock()
    rebalances = RebalanceMetrics(clock)
    name = "kafka_connect_worker_rebalance_"

    def read() -> dict[str, float]:
        text = exposition([], {}, Starts(), Starts(), rebalances.samples("sessioned", "http://w/", 7))
        return {key.removeprefix(name): value for (key, _), value in values(text).items() if key.startswith(name)}

    assert (read()["time_since_last_rebalance_ms"], read()["completed_rebalances_total"]) == (float("inf"), 0)
    rebalances.began()
    clock.now += 1
    rebalances.began()  # the worker was behind the config topic, and has joined again
    clock.now += 2
    assert read()["rebalancing"] == 1
    rebalances.completed()
    rebalances.began()
    clock.now += 1
    rebalances.completed()
    clock.now += 5
    shown = read()
    assert (shown["rebalancing"], shown["completed_rebalances_total"], shown["epoch"]) == (0, 2, 7)
    assert (shown["rebalance_avg_time_ms"], shown["rebalance_max_time_ms"]) == (2000, 3000)
    assert shown["time_since_last_rebalance_ms"] == 5000
    assert (shown["leader_name"], shown["connect_protocol"]) == (1, 1)


def test_every_metric_of_the_table_is_shown() -> None:
    metrics = TaskMetrics(ErrorMetrics())
    rebalances = RebalanceMetrics(Clock()).samples("sessioned", None, 0)
    text = exposition([Connector()], {ConnectorTaskId("c", 0): metrics}, Starts(), Starts(), rebalances)
    shown = {name for name, _ in values(text)}
    for metric in METRICS:
        assert metric.name in shown, metric.name
