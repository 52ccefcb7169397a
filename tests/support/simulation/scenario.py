"""Define what happens in one history: who works, and what fails when. The seed determines the rest and all delays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from .kinds import AWARE, CLASSIC, MIXES
from .levels import SAFE, is_leveled
from .retention import Retention, retention_of
from .worker import WorkerPlan


@dataclass(frozen=True)
class Event:
    """An event at `at` seconds. `target` is 0, 1 or 2, and `for_s` is the event's duration in seconds.

    Events of the broker:

    * crash: the power fails. crash told: the same, at the moment when the next client learns how its transaction ended
      (target 0), or that its offsets (1) or records (2) are safe. crash at start: the power fails, and again while the
      broker reads its logs.
    * kill: only the process ends. stop: the broker stops cleanly.
    * full: the disk is full. With target 0, not even the reserve is left. sync fails: the disk refuses to sync, and the
      broker is restarted. slow disk: each sync takes many times as long.
    * clock: the wall clock jumps ahead by two seconds (target 0) or an hour (1), or back by a second (2).
    * delete records: an operator deletes records of an output that readers have received. topic: the extra topic is
      deleted and recreated. partitions: the outputs (target 0, 1) or the inputs (2) get another partition. marker: an
      operator writes a marker for some producer.
    * delete group: an operator deletes the group of the target's worker as soon as it has no members. When a
      transaction has pending offsets, the group's workers die (0), leave (1) or halt (2).

    Events of the target's worker:

    * die: it ends and is started again. halt: it stands still. leave: it leaves its group and comes back. rejoin: it
      asks for another assignment. fence: an operator fences one of its ids.

    Other events:

    * storm: connections break. mire: frames are slow.
    * files lost: the broker is restarted without index files (target 0), producer snapshots and marks (1) or
      checkpoints (2), or with older ones. indexes vanish: index files are removed while the broker runs.
    * careless: a producer without acknowledgements sends its batches and closes.
    """

    at: float
    what: str
    target: int = 0
    for_s: float = 0.5


@dataclass(frozen=True)
class Scenario:
    """One history.

    `max_epoch` is the last producer epoch, and `broker` one of world.BROKERS. The options are:

    * `steady`: one more member does nothing but stay, because claims are dropped with the last member of a group.
    * `calm`: nothing fails, so no request may be refused, and every transaction ends as its worker requests.
    * `two_groups`: every second worker is in another group, and reads the inputs for that group.
    * `extra`: transactions also write to another topic, which is sometimes deleted and recreated.
    * `small`: segments are small, and transactions also write to a compacted topic, for whose keys compaction has
      little memory.
    * `lone_producers`: this number of producers also write, without transactions.
    * `retention`: the outputs lose their oldest records.
    * `leveled`: the broker has other feature levels at each start.
    * `consumed`: a consumer stays for the whole history.
    * `misnames`: EndTxn sometimes names too few partitions, or too many.
    """

    seed: int
    workers: tuple[WorkerPlan, ...]
    events: tuple[Event, ...]
    inputs: int = 3
    outputs: int = 2
    length_s: float = 5.0
    sync_s: float = 0.002
    max_epoch: int = 32767
    broker: str = "plain"
    steady: bool = False
    calm: bool = False
    two_groups: bool = False
    extra: bool = False
    small: bool = False
    lone_producers: int = 0
    retention: Retention | None = None
    leveled: bool = False
    consumed: bool = False
    misnames: bool = False

    @property
    def may_lose(self) -> bool:
        """Whether the disk may lose acknowledged data: the power or a sync fails, and responses waited for no sync."""
        losses = ("crash", "crash told", "crash at start", "sync fails")
        return self.broker == "os" and any(event.what in losses for event in self.events)


CALM = 8
"""The last digit of the seeds whose histories are calm."""

KINDS_OF_EVENTS = {
    "crash": 3,
    "crash told": 7,
    "kill": 2,
    "die": 4,
    "halt": 5,
    "leave": 3,
    "rejoin": 6,
    "storm": 4,
    "mire": 3,
    "fence": 2,
}

HARSH = (2, 6)
"""The last digits of the seeds whose histories have these events, too."""

HARSH_EVENTS = KINDS_OF_EVENTS | {
    "crash at start": 5,
    "slow disk": 4,
    "clock": 5,
    "delete records": 3,
    "topic": 4,
    "stop": 4,
    "full": 4,
    "sync fails": 3,
    "marker": 5,
    "partitions": 4,
    "delete group": 5,
}

FURTHER = (0, 6, 8, 10, 12)
"""The remainders modulo 13 of the seeds whose histories also have these events. The events are drawn from a separate
random stream, so that other seeds and the rest of the history stay the same.
"""

FURTHER_EVENTS = {
    "files lost": 4,
    "indexes vanish": 2,
    "careless": 3,
}

CONSUMED = (2, 5, 8)
"""The remainders modulo 16 of the seeds whose histories have a lasting consumer."""

OS_LOSES_NOTHING = {"crash": "kill", "crash told": "kill", "crash at start": "kill"}
"""With durability=os, data survives only the end of the process. A power failure loses the newest records."""


def scenario(seed: int, mixes: tuple[tuple[str, ...], ...] = MIXES, *, contended: bool | None = None) -> Scenario:
    """Return the scenario of a seed.

    If it is contended, workers often halt in the middle of a transaction, and others take over their partitions
    meanwhile. With None, the seed decides.
    """
    made = _with_levels(_with_retention(as_it_was(seed, mixes, contended)))
    return replace(made, consumed=seed % 16 in CONSUMED, misnames=True)


def as_it_was(seed: int, mixes: tuple[tuple[str, ...], ...] = MIXES, contended: bool | None = None) -> Scenario:
    """Return the scenario of a seed without the features that were added later, for seeds that failed before."""
    made = _first_part(seed, mixes, contended)
    return made if made.calm or seed % 13 not in FURTHER else _with_further_events(made)


def _with_retention(made: Scenario) -> Scenario:
    """Return the scenario with retention if the seed has it, often with a clock that jumps ahead."""
    retention = retention_of(made.seed)
    rng = Random(f"clock of {made.seed}")
    if retention is None or made.calm or rng.random() < 0.5:
        return replace(made, retention=retention)
    jump = Event(round(rng.random() * made.length_s, 3), "clock", 1)
    return replace(made, retention=retention, events=tuple(sorted((*made.events, jump), key=lambda event: event.at)))


def _with_levels(made: Scenario) -> Scenario:
    """Return the scenario with changing levels if the seed has them: with suitable workers and one more restart."""
    if not is_leveled(made.seed):
        return made
    rng = Random(f"workers of {made.seed}")
    workers = tuple(
        worker if worker.kind in SAFE else replace(worker, kind=rng.choice(SAFE)) for worker in made.workers
    )
    made = replace(made, workers=workers, steady=False, leveled=True)
    if made.calm:
        return made
    restart = Event(round(rng.random() * made.length_s, 3), rng.choice(("kill", "stop")), for_s=0.1)
    return replace(made, events=tuple(sorted((*made.events, restart), key=lambda event: event.at)))


def _with_further_events(made: Scenario) -> Scenario:
    """Return the scenario with further events, if the seed has them."""
    rng = Random(f"further events of {made.seed}")
    events = [_event(rng, FURTHER_EVENTS, made.length_s) for _ in range(rng.choice((0, 1, 2)))]
    return replace(
        made,
        events=tuple(sorted((*made.events, *events), key=lambda event: event.at)),
        small=rng.random() < 0.6,
        lone_producers=rng.choice((0, 1, 2)),
    )


def _first_part(seed: int, mixes: tuple[tuple[str, ...], ...], contended: bool | None) -> Scenario:
    rng = Random(seed)
    mix = rng.choice(mixes)
    if contended is None and seed % 10 == CALM:
        return _calm(seed, rng, mix)
    if contended is None:
        contended = rng.random() < 0.4
    workers = tuple(
        _contender(rng, mix) if contended else _worker(rng, mix)
        for _ in range(rng.choice((2, 2, 3) if contended else (1, 2, 2, 3)))
    )
    length_s = rng.choice((1.5, 2.0, 3.0))
    harsh = seed % 10 in HARSH
    kinds = HARSH_EVENTS if harsh else KINDS_OF_EVENTS
    events = tuple(_event(rng, kinds, length_s) for _ in range(rng.choice((0, 2, 4, 6, 8))))
    made = Scenario(
        seed,
        workers,
        tuple(sorted(events, key=lambda event: event.at)),
        inputs=rng.choice((1, 2, 3)),
        outputs=rng.choice((1, 2)),
        length_s=length_s,
        sync_s=rng.choice((0.001, 0.02, 0.1)),
        max_epoch=rng.choice((32767, 32767, 6)),
        broker=rng.choices(("plain", "compacting", "forgetful"), (70, 12, 18))[0],
        steady=needs_steady_member(workers),
    )
    if not harsh:
        return made
    if rng.random() < 0.4:
        made = _under_os(made, rng)
    elif made.broker == "plain":
        made = replace(made, broker="spread")
    return replace(made, two_groups=not made.steady and rng.random() < 0.5, extra=True)


def _under_os(made: Scenario, rng: Random) -> Scenario:
    """Return the scenario with durability=os. In every second one the power fails; then the history only has to end."""
    events = made.events
    if rng.random() < 0.5:
        events = tuple(replace(event, what=OS_LOSES_NOTHING.get(event.what, event.what)) for event in events)
    return replace(made, broker="os", events=events)


def _calm(seed: int, rng: Random, mix: tuple[str, ...]) -> Scenario:
    """Return a scenario with one worker, which often uses most of its transactions' timeout."""
    plan = replace(_worker(rng, mix), stalls=0.0, session_ms=60_000, ponders=rng.choice((0.0, 0.3, 0.8)))
    return Scenario(
        seed,
        (plan,),
        (),
        inputs=rng.choice((1, 2, 3)),
        outputs=rng.choice((1, 2)),
        length_s=3.0,
        sync_s=rng.choice((0.001, 0.01)),
        max_epoch=rng.choice((32767, 6)),
        broker=rng.choice(("plain", "compacting")),
        calm=True,
    )


def needs_steady_member(workers: Iterable[WorkerPlan]) -> bool:
    """Return whether exactly-once rests on claims alone, which are dropped with the last member (see `kinds`)."""
    kinds = {worker.kind for worker in workers}
    return not kinds.isdisjoint(CLASSIC) and not kinds.isdisjoint(AWARE)


def _worker(rng: Random, mix: tuple[str, ...]) -> WorkerPlan:
    return WorkerPlan(
        kind=rng.choice(mix),
        timeout_ms=rng.choice((800, 2000, 2000, 4000)),
        session_ms=rng.choice((800, 1500, 3000)),
        lazy=rng.choice((1, 1, 2, 4)),
        aborts=rng.choice((0.0, 0.1, 0.3)),
        think_s=rng.choice((0.01, 0.05, 0.3)),
        stalls=rng.choice((0.0, 0.03, 0.1)),
        rebalance_ms=rng.choice((150, 500, 2000)),
    )


def _contender(rng: Random, mix: tuple[str, ...]) -> WorkerPlan:
    return WorkerPlan(
        kind=rng.choice(mix),
        timeout_ms=rng.choice((2000, 4000)),
        session_ms=rng.choice((800, 3000)),
        lazy=1,
        aborts=0.0,
        think_s=0.01,
        stalls=0.25,
        rebalance_ms=150,
    )


def _event(rng: Random, kinds: dict[str, int], length_s: float) -> Event:
    return Event(
        at=round(rng.random() * length_s, 3),
        what=rng.choices(list(kinds), list(kinds.values()))[0],
        target=rng.randrange(3),
        for_s=round(rng.choice((0.05, 0.3, 1.0, 2.5)) * (0.5 + rng.random()), 3),
    )
