"""What happens in one history: who works, and what goes wrong when. The seed gives the rest, down to each delay."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .kinds import MIXES
from .worker import WorkerPlan


@dataclass(frozen=True)
class Event:
    """At `at` seconds something happens; `target` is a worker's slot where there is one, `for_s` how long it lasts.

    crash: the broker's power fails, and it comes back after for_s. crash told: the same, but at the very moment at
    which the next client learns how its transaction ended. kill: the broker's process alone ends. die: a worker ends
    and is started again after for_s. halt: it stands still for for_s. leave: it leaves its group, and comes back after
    for_s. rejoin: it asks for another assignment. storm: connections break. mire: frames are slow. fence: an operator
    fences an id of the worker. full: the disk is full, for target 0 with its reserve. sync fails: the disk refuses to
    sync, and the broker is restarted.
    """

    at: float
    what: str
    target: int = 0
    for_s: float = 0.5


@dataclass(frozen=True)
class Scenario:
    """One history. `max_epoch` is where producer epochs end; with `compacts` the broker compacts its own topics."""

    seed: int
    workers: tuple[WorkerPlan, ...]
    events: tuple[Event, ...]
    inputs: int = 3
    outputs: int = 2
    length_s: float = 5.0
    sync_s: float = 0.002
    max_epoch: int = 32767
    compacts: bool = False


KINDS_OF_EVENTS = {
    "crash": 3,
    "crash told": 2,
    "kill": 2,
    "die": 4,
    "halt": 5,
    "leave": 3,
    "rejoin": 8,
    "storm": 4,
    "mire": 3,
    "fence": 2,
}


def scenario(seed: int, mixes: tuple[tuple[str, ...], ...] = MIXES) -> Scenario:
    """The scenario of a seed."""
    rng = Random(seed)
    mix = rng.choice(mixes)
    workers = tuple(
        WorkerPlan(
            kind=rng.choice(mix),
            timeout_ms=rng.choice((800, 2000, 2000, 4000)),
            session_ms=rng.choice((800, 1500, 3000)),
            lazy=rng.choice((1, 1, 2, 4)),
            aborts=rng.choice((0.0, 0.1, 0.3)),
            think_s=rng.choice((0.01, 0.05, 0.3)),
            stalls=rng.choice((0.0, 0.03, 0.1)),
            rebalance_ms=rng.choice((150, 500, 2000)),
        )
        for _ in range(rng.choice((1, 2, 2, 2, 3)))
    )
    length_s = rng.choice((1.5, 2.0, 3.0))
    events = tuple(
        Event(
            at=round(rng.random() * length_s, 3),
            what=rng.choices(list(KINDS_OF_EVENTS), list(KINDS_OF_EVENTS.values()))[0],
            target=rng.randrange(len(workers)),
            for_s=round(rng.choice((0.05, 0.3, 1.0, 2.5)) * (0.5 + rng.random()), 3),
        )
        for _ in range(rng.choice((0, 2, 4, 6, 8)))
    )
    return Scenario(
        seed,
        workers,
        tuple(sorted(events, key=lambda event: event.at)),
        inputs=rng.choice((1, 2, 3)),
        outputs=rng.choice((1, 2)),
        length_s=length_s,
        sync_s=rng.choice((0.001, 0.005, 0.05)),
        max_epoch=rng.choice((32767, 32767, 6)),
        compacts=rng.random() < 0.15,
    )
