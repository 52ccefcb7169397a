"""`Metrics`: counters of a processor, shared by all of its workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    """Counters since the processor was created."""

    records_in: int = 0
    """Input records of committed transactions."""
    records_out: int = 0
    """Output records of committed transactions, without dead letters."""
    dead_letters: int = 0
    """Input records that went to the dead-letter topic, in committed transactions."""
    commits: int = 0
    """Committed transactions."""
    aborts: int = 0
    """Aborted transactions."""
    reinitialisations: int = 0
    """Number of repeated initialisations of producers, which follow rebalances, fencing, and failures with an unknown
    outcome.
    """
    rebalances: int = 0
    """Completed rebalances, counted for each worker."""
