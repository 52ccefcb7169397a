"""Decide which start of a query owns the query. The driver calls `take_over` at each start, before Spark reads the
checkpoint.

The newest start wins. A replaced driver must not take the query back when it restarts a failed query. Each process
therefore remembers its newest run of each query. If another run has taken over the query since then, the process raises
SupersededError. After that, another start in the same process counts as a new one, because a user has requested it.

A job also calls `take_over` before it starts a batch write, so that `let_go` can end the write's transaction.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...client.errors import ConfigError, IllegalStateError
from ..blocking import BlockingCluster
from .checkpoint import Notes, done_and_pending
from .settings import SinkSettings
from .transaction import Record, SinkState, SinkTransaction, SupersededError

FIRST_BATCH: Final = (
    "the checkpoint has a plan of batch 0 and no note that the batch is done, but Kafka has no state of this query, so "
    "it is unknown whether that batch is committed. Either the query was stopped for longer than the broker's "
    "offsets.retention.minutes, and its state has expired, or the checkpoint belonged to another sink. Check what was "
    "written last. To write the batch, set adoptQuery=true for one start, and remove the option afterwards"
)


class StateError(IllegalStateError):
    """The sink cannot find out whether a batch is committed.

    The checkpoint and Kafka contradict each other, or one of them lacks the information.
    """


class Start(NamedTuple):
    """A start of a query. It owns the query until a newer start does."""

    run: str
    done: int | None = None
    """The newest batch that is done according to the checkpoint. If this is set, the next batch is a new one.

    None if no batch is done, if a batch is pending, or if the checkpoint cannot be read.
    """


_runs: dict[tuple[str, str], str] = {}
"""The newest run of this process, by brokers and transactional id."""


def take_over(settings: SinkSettings, notes: Notes | None = None, timeout_s: float | None = None) -> Start:
    """Make this driver the owner of the query: fence older drivers, and end the transaction that they left open.

    Ending it at once spares readers a wait for its timeout. `notes` are those of the checkpoint, or None if this
    process cannot read them. Raises KafkaError: SupersededError if a newer driver owns the query, StateError if it is
    unknown whether the pending batch is committed.
    """
    key = _key(settings)
    start = Start("")

    def allow(record: Record) -> None:
        nonlocal start
        if notes is None:
            return
        try:
            done, pending = done_and_pending(notes)
        except OSError as error:
            raise ConfigError("checkpointLocation", str(error)) from error
        if pending is None:
            start = Start("", done)
        elif pending == 0 and record == Record() and not settings.adopt:
            raise StateError(FIRST_BATCH)

    with BlockingCluster(settings.config, timeout_s or settings.timeout_s) as kafka:
        transaction = SinkTransaction(kafka.cluster, settings.config)
        previous = _runs.pop(key, "")
        try:
            run = kafka.run(transaction.claim(settings.transactional_id, settings.state_topic, previous, allow))
        except SupersededError:
            raise
        except BaseException:
            _runs[key] = previous
            raise
    _runs[key] = run
    return start._replace(run=run)


def let_go(settings: SinkSettings, timeout_s: float) -> SinkState | None:
    """End the transaction that this process left open, and return the state that was committed last.

    A transaction whose commit was requested is committed. If this process does not own the query, nothing is done, and
    the result is None. Raises KafkaError: SupersededError if a newer driver owns the query, and so has ended the
    transaction.
    """
    run = _runs.get(_key(settings))
    if not run:
        return None
    with BlockingCluster(settings.config, timeout_s) as kafka:
        transaction = SinkTransaction(kafka.cluster, settings.config)
        return kafka.run(transaction.begin(settings.transactional_id, settings.state_topic, run)).state


def _key(settings: SinkSettings) -> tuple[str, str]:
    """Return the brokers and the transactional id, which identify a query in this process."""
    return ",".join(settings.config.bootstrap_servers), settings.transactional_id
