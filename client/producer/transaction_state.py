"""The states of a transactional producer, and which may follow which: a table, so that it can be read and tested.

A producer is at one state at a time; every change goes through `TransactionManager.become`, which consults the table.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Kafka's names, and COMMIT_UNKNOWN: the commit was requested, and its response was not received."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "ready for a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING_TRANSACTION = "committing"
    COMMIT_UNKNOWN = "waiting to learn whether its commit succeeded"
    ABORTING_TRANSACTION = "aborting"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "unusable"


S = State
PREVIOUS: Final[dict[State, frozenset[State]]] = {
    S.UNINITIALIZED: frozenset({S.INITIALIZING}),  # initialising failed and may be tried again
    # Again at any time between transactions, and where nothing else helps: it decides what was left open.
    S.INITIALIZING: frozenset({S.UNINITIALIZED, S.READY, S.COMMIT_UNKNOWN, S.ABORTABLE_ERROR, S.FATAL_ERROR}),
    S.READY: frozenset({S.INITIALIZING, S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION}),
    S.IN_TRANSACTION: frozenset({S.READY, S.COMMITTING_TRANSACTION}),  # the latter: nothing was sent to decide yet
    S.COMMITTING_TRANSACTION: frozenset({S.IN_TRANSACTION, S.COMMIT_UNKNOWN}),
    S.COMMIT_UNKNOWN: frozenset({S.COMMITTING_TRANSACTION}),
    S.ABORTING_TRANSACTION: frozenset({S.IN_TRANSACTION, S.ABORTABLE_ERROR}),
    S.ABORTABLE_ERROR: frozenset(
        {S.IN_TRANSACTION, S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR}
    ),
    S.FATAL_ERROR: frozenset(State),
}
"""Each state with those that it may follow."""


def may_follow(before: State, after: State) -> bool:
    """Return whether a producer may go from one state to the other."""
    return before in PREVIOUS[after]
