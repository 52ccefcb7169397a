"""Define schedules of `kill -9`, which are fixed or drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

Target: TypeAlias = Literal["broker", "transformer", "driver"]
JOB_TARGETS: Final = ("broker", "transformer")
PIPELINE_TARGETS: Final = ("broker", "driver")


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """A kill of the process `target`.

    The kill is due when the job has processed the fraction `at` of all flights, and happens `delay_s` seconds later.
    Before this delay, an `aimed` kill waits, for a few seconds at most, until the log has records of an open
    transaction.
    """

    at: float
    target: Target
    delay_s: float = 0.0
    aimed: bool = False

    def __str__(self) -> str:
        return f"{self.target}@{self.at:.3f}"


DEFAULT_SCHEDULE = (
    Kill(0.2, "transformer", aimed=True),
    Kill(0.45, "broker", aimed=True),
    Kill(0.7, "transformer", aimed=True),
)


PIPELINE_SCHEDULE = (Kill(0.2, "driver", aimed=True), Kill(0.6, "broker", aimed=True))
"""The default schedule of the second half, the job on Spark."""


def parse(text: str, targets: Sequence[str] = JOB_TARGETS) -> tuple[Kill, ...]:
    """Parse a schedule such as "transformer@0.2,broker@0.45" as aimed kills. "none" is an empty schedule.

    Raise ValueError if the text is malformed or names a target that is not in `targets`.
    """
    if text == "none":
        return ()
    kills = []
    for item in text.split(","):
        target, _, at = item.strip().partition("@")
        try:
            fraction = float(at)
        except ValueError:
            fraction = -1.0
        if target not in targets or not 0 <= fraction < 1:
            offered = " or ".join(f"{one}@FRACTION" for one in targets)
            raise ValueError(f"{item!r} is not {offered}, where FRACTION is at least 0 and below 1")
        kills.append(Kill(fraction, cast(Target, target), aimed=True))
    return tuple(sorted(kills))


def random_schedule(seed: int, brokers: int = 1, transformers: int = 2, drivers: int = 0) -> tuple[Kill, ...]:
    """Return the given numbers of kills, at random moments that `seed` determines.

    These kills are not aimed: they do not wait for an open transaction.
    """
    draw = random.Random(seed)
    targets: list[Target] = ["broker"] * brokers
    targets += ["transformer"] * transformers
    targets += ["driver"] * drivers
    return tuple(sorted(Kill(draw.uniform(0.02, 0.95), target, draw.uniform(0.0, 0.3)) for target in targets))
