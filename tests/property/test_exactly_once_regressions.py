"""Histories that once failed, made small, and what was wrong then."""

from __future__ import annotations

from functools import partial

import pytest
from support.simulation.scenario import Event, Scenario, as_it_was
from support.simulation.worker import WorkerPlan
from support.simulation.world import history

stalling = partial(WorkerPlan, timeout_ms=2000, lazy=1, aborts=0.0, think_s=0.01, stalls=0.25, rebalance_ms=150)

FOUND = {
    # The process was killed just after it had made a partition's directory. The next one found it, and wrote to it for
    # good, but nobody had ever synced the name: the power failure took acknowledged records, directory and all.
    "a-directory-nobody-synced": Scenario(
        seed=0,
        workers=(WorkerPlan("classic"),),
        events=(Event(0.481, "kill", for_s=0.272), Event(1.849, "crash", for_s=0.067)),
        inputs=3,
        outputs=1,
        length_s=2.0,
        sync_s=0.05,
    ),
    # At its deadline the transaction had another partition on the way to the disk: the abort was put off by the whole
    # interval of ten seconds.
    "a-transition-at-the-deadline": Scenario(
        seed=4,
        workers=(WorkerPlan("classic tv2", timeout_ms=800), WorkerPlan("classic, v5 fetch", timeout_ms=800)),
        events=(),
        inputs=3,
        outputs=2,
        length_s=2.0,
        sync_s=0.05,
        broker="compacting",
    ),
    # A producer that names a generation and no member slept until the group was empty; then its outdated generation was
    # not looked at, and its claim, or its successor's, had gone with the last member.
    "asleep-until-the-group-was-empty": Scenario(
        seed=2,
        workers=(
            WorkerPlan("aware, no member id", stalls=0.25, rebalance_ms=150),
            WorkerPlan("kip447", session_ms=800, think_s=0.01, stalls=0.25, rebalance_ms=150),
        ),
        events=(),
        inputs=1,
        outputs=1,
        length_s=3.0,
        sync_s=0.001,
    ),
    # The disk took longer than offsets.commit.timeout.ms: the group went back to the member that had been replaced, and
    # the log had its successor.
    "a-static-member-comes-back-while-the-disk-is-slow": Scenario(
        seed=0,
        workers=(WorkerPlan("aware, static", session_ms=6000, rebalance_ms=2000, think_s=0.01, aborts=0.0),),
        events=(Event(0.5, "slow disk", for_s=9.0), Event(0.7, "die", for_s=0.1)),
        inputs=1,
        outputs=2,
        length_s=2.0,
        sync_s=0.15,
        broker="spread",
    ),
    # With durability os, a start did not write again what a failed sync had left in the page cache, and counted it as
    # on disk. The next loss of power took it, and the broker could not read its metadata.
    "metadata-that-the-disk-has-refused": Scenario(
        seed=206022172,
        workers=(
            WorkerPlan("kip447, fresh ids", timeout_ms=2000, session_ms=3000, lazy=4, aborts=0.3, rebalance_ms=150),
        ),
        events=(
            Event(0.244, "sync fails", target=0, for_s=2.715),
            Event(0.252, "topic", target=2, for_s=1.325),
            Event(0.345, "stop", target=2, for_s=0.069),
            Event(0.457, "crash at start", target=0, for_s=0.511),
        ),
        inputs=3,
        outputs=2,
        length_s=1.5,
        sync_s=0.001,
        max_epoch=6,
        broker="os",
        extra=True,
        misnames=True,
    ),
    # The power failed while the broker started on a full disk. The next start could not write the metadata's records
    # from the journal to their file, and was refused. The history waited for it forever: now the start is repeated.
    "a-start-on-a-full-disk": Scenario(
        seed=310102812,
        workers=(
            stalling("aware, pre-registered", session_ms=3000),
            stalling("aware, pre-registered", session_ms=800),
            stalling("aware, plain fetch", session_ms=800),
        ),
        events=(
            Event(0.062, "leave", 2, 0.976),
            Event(0.181, "partitions", 0, 3.227),
            Event(0.333, "partitions", 1, 0.294),
            Event(0.423, "crash told", 2, 1.461),
            Event(0.689, "die", 2, 0.066),
            Event(0.962, "full", 0, 1.263),
            Event(1.083, "crash at start", 0, 0.4),
            Event(1.421, "halt", 0, 3.035),
        ),
        inputs=3,
        outputs=1,
        length_s=2.0,
        sync_s=0.02,
        broker="spread",
        two_groups=True,
        extra=True,
        small=True,
        misnames=True,
    ),
    # The power failed, the state of two transactions was lost, and the disk was full when the start aborted them: the
    # abort was still being repeated when a restart was compared with it. Now the comparison waits.
    "an-abort-that-a-full-disk-delays": Scenario(
        seed=310172366,
        workers=(
            stalling("aware, no member id", session_ms=3000),
            stalling("aware, no member id", session_ms=800),
        ),
        events=(
            Event(0.186, "halt", 1, 0.423),
            Event(0.197, "crash at start", 0, 0.038),
            Event(0.221, "die", 0, 1.329),
            Event(0.222, "full", 0, 3.717),
            Event(0.255, "rejoin", 0, 2.8),
            Event(0.259, "careless", 0, 0.33),
            Event(0.568, "sync fails", 2, 1.214),
            Event(1.277, "halt", 0, 0.07),
            Event(1.314, "careless", 1, 2.964),
            Event(1.493, "halt", 0, 0.028),
        ),
        inputs=3,
        outputs=2,
        length_s=1.5,
        sync_s=0.02,
        broker="os",
        extra=True,
        small=True,
        lone_producers=1,
        misnames=True,
    ),
    # A group-aware producer committed and then claimed other partitions, so the commit of an outdated producer without
    # generation was accepted. Compaction had removed the record that said so. Now the checks know the removed records.
    "a-claim-that-compaction-removed": Scenario(
        seed=8102979,
        workers=(
            stalling("classic tv2", timeout_ms=4000, session_ms=800),
            stalling("aware, static", timeout_ms=4000, session_ms=800),
            stalling("aware, static", timeout_ms=4000, session_ms=800),
        ),
        events=(
            Event(0.092, "fence", 2, 0.417),
            Event(1.731, "crash told", 1, 2.666),
        ),
        inputs=2,
        outputs=2,
        length_s=2.0,
        sync_s=0.02,
        max_epoch=6,
        broker="compacting",
        steady=True,
        misnames=True,
    ),
}

SEEDS = (
    101567,  # a producer without generation slept until its group was empty: its claims were gone
    103400,
    103435,
    120994,  # one with a generation slept so: its offsets were accepted
    135501,
    137843,
    131133,  # the last worker had no time left to go on
    144873,
    312059,  # the member that is to stay slept past its session
    432129,  # two workers without generations took turns on one id
    3526,  # a power failure took the coordinator's newest records, and logs had higher epochs than it
    5712,
    8402,
    8676,
    8080946,  # a topic was deleted and made anew between two crashes: it was offline, because it seemed to be lost
    40054312,  # a full disk left half a batch behind a segment that was finished: after a loss of power it was offline
    9011197,  # index files were lost and made again, and the power failed: aborted records were shown
    9046595,  # epochs were used up: a fenced producer was told that its transaction is committed
    8059346,  # an abort's marker was lost: the commit of a later transaction committed what had been aborted
)
"""Of `make histories`, beyond those that every run has."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_once_failed_is_exactly_once(seed: int) -> None:
    history(as_it_was(seed))


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("seed", range(5))
def test_it_does_not_fail_any_more(name: str, seed: int) -> None:
    """With its own seed and others beside it: small changes of anything move the moments of a seed."""
    found = FOUND[name]
    history(Scenario(**{**vars(found), "seed": found.seed + seed}))
