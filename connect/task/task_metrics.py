"""`TaskMetrics`: the counters of one task, with the meanings of Kafka Connect's metrics.

Rates, averages, maxima and minima cover the last 30 to 60 seconds, as in Kafka (metrics.num.samples = 2,
metrics.sample.window.ms = 30,000). They are computed when they are read, so that recording a value is cheap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ..stores.status_records import State

SAMPLE_S: Final = 30.0
_SAMPLES: Final = 2

Clock = Callable[[], float]


class Window:
    """The values recorded in the last one or two sample intervals."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: list[list[float]] = []
        """For each sample: its start, count, sum, maximum and minimum."""

    def record(self, value: float) -> None:
        """Add a value."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_S:
            self._samples = [*self._samples[1 - _SAMPLES :], [now, 0, 0.0, value, value]]
        sample = self._samples[-1]
        sample[1] += 1
        sample[2] += value
        sample[3] = max(sample[3], value)
        sample[4] = min(sample[4], value)

    @property
    def rate(self) -> float:
        """The sum per second.

        The length of an incomplete window is one sample plus the time since the window's start, as in Kafka.
        """
        samples = self._recent()
        if not samples:
            return 0.0
        missing = (_SAMPLES - 1 - (len(samples) - 1)) * SAMPLE_S
        elapsed = self._clock() - samples[0][0] + missing
        return sum(sample[2] for sample in samples) / max(elapsed, SAMPLE_S)

    @property
    def average(self) -> float:
        """The mean value; NaN without values."""
        samples = self._recent()
        count = sum(sample[1] for sample in samples)
        return sum(sample[2] for sample in samples) / count if count else float("nan")

    @property
    def maximum(self) -> float:
        """The largest value; NaN without values."""
        return max((sample[3] for sample in self._recent()), default=float("nan"))

    @property
    def minimum(self) -> float:
        """The smallest value; NaN without values."""
        return min((sample[4] for sample in self._recent()), default=float("nan"))

    def _recent(self) -> list[list[float]]:
        oldest = self._clock() - SAMPLE_S * _SAMPLES
        return [sample for sample in self._samples if sample[0] >= oldest]


class ErrorMetrics:
    """Counts the failures of a task's records (task-error-metrics)."""

    def __init__(self) -> None:
        self.failures = 0
        """The failed attempts to process a record."""
        self.errors = 0
        """The records that made the task fail."""
        self.skipped = 0
        self.retries = 0
        self.logged = 0
        self.last_timestamp_ms = 0

    def failed(self) -> None:
        """Count a failed attempt."""
        self.failures += 1
        self.last_timestamp_ms = int(time.time() * 1000)


class TaskMetrics:
    """The metrics of one task."""

    def __init__(self, errors: ErrorMetrics, clock: Clock = time.monotonic) -> None:
        self.errors, self._clock = errors, clock
        self.polled_total = self.written_total = self.active = 0
        self.polled, self.written, self.active_counts = Window(clock), Window(clock), Window(clock)
        self.poll_times_ms, self.batch_sizes = Window(clock), Window(clock)
        self.commit_times_ms, self.commit_outcomes = Window(clock), Window(clock)
        self.transaction_sizes = Window(clock)
        self._sent = self._produced = 0
        """Since the last commit: the records that were handed over, and those of them that were not dropped."""
        self.state = State.UNASSIGNED
        self._since = clock()
        self._durations: dict[State, float] = {}

    def poll_ended(self, records: int, seconds: float) -> None:
        """Count a batch that a poll returned, and record the duration of the poll."""
        self.polled_total += records
        self.active += records
        self.polled.record(records)
        self.active_counts.record(self.active)
        self.poll_times_ms.record(seconds * 1000)
        self.batch_sizes.record(records)

    def sent(self, *, dropped: bool) -> None:
        """Count a record that was handed to the producer, or dropped by a transform or by errors.tolerance."""
        self._sent += 1
        if not dropped:
            self._produced += 1

    def committed(self) -> None:
        """Count the records that were handed to the producer since the last commit as written.

        Dropped records are not counted as written, but they are no longer active either.
        """
        if not self._sent:
            return
        self.active -= self._sent
        self.written_total += self._produced
        self.written.record(self._produced)
        self.active_counts.record(self.active)
        self.transaction_sizes.record(self._produced)
        self._sent = self._produced = 0

    @property
    def pending(self) -> bool:
        """Whether records wait for a commit."""
        return self._sent > 0

    def commit_ended(self, seconds: float, *, success: bool) -> None:
        """Count a commit of offsets, and record its duration."""
        self.commit_times_ms.record(seconds * 1000)
        self.commit_outcomes.record(1.0 if success else 0.0)

    def state_changed(self, state: State) -> None:
        """Record the task's new state."""
        now = self._clock()
        self._durations[self.state] = self._durations.get(self.state, 0.0) + now - self._since
        self.state, self._since = state, now

    def ratio(self, state: State) -> float:
        """Return the share of the task's time, from 0 to 1, that it spent in a state."""
        durations = dict(self._durations)
        durations[self.state] = durations.get(self.state, 0.0) + self._clock() - self._since
        total = sum(durations.values())
        return durations.get(state, 0.0) / total if total else 0.0
