"""`RebalanceMetrics`: Kafka Connect's metrics of rebalances (connect-worker-rebalance-metrics).

For a worker, a rebalance begins when the worker receives its assignment, and is complete when the worker has started
the assigned work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ..task.task_metrics import Window
from ..worker.metrics import REBALANCE, Sample


class RebalanceMetrics:
    """Counts and times the rebalances of one worker. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times_ms = Window(clock)
        self._began: float | None = None
        self._completed: float | None = None
        self._total = 0

    def began(self) -> None:
        """Record that the worker has received an assignment."""
        if self._began is None:
            self._began = self._clock()

    def completed(self) -> None:
        """Record that the worker has started its assigned work."""
        began, self._began = self._began, None
        self._completed = self._clock()
        if began is not None:
            self._total += 1
            self._times_ms.record((self._completed - began) * 1000)

    def samples(self, protocol: str, leader_url: str | None, epoch: int) -> Iterator[Sample]:
        """Yield the current values of the metrics."""
        since = math.inf if self._completed is None else (self._clock() - self._completed) * 1000
        yield f"{REBALANCE}connect_protocol", (protocol,), 1
        yield f"{REBALANCE}leader_name", (leader_url or "",), 1
        yield f"{REBALANCE}epoch", (), epoch
        yield f"{REBALANCE}rebalancing", (), self._began is not None
        yield f"{REBALANCE}completed_rebalances_total", (), self._total
        yield f"{REBALANCE}rebalance_avg_time_ms", (), self._times_ms.average
        yield f"{REBALANCE}rebalance_max_time_ms", (), self._times_ms.maximum
        yield f"{REBALANCE}time_since_last_rebalance_ms", (), since
