"""When to kill what: a schedule of `kill -9`s, fixed or drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Target: TypeAlias = Literal["broker", "transformer"]


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """Kill `target` when the job has done the fraction `at` of all flights and `delay_s` more seconds have passed.

    An `aimed` kill also waits, not for long, until records of an undecided transaction lie in the log.
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


def parse(text: str) -> tuple[Kill, ...]:
    """Read "transformer@0.2,broker@0.45" as aimed kills; "none" is none at all. ValueError says what is wrong."""
    if text == "none":
        return ()
    kills = []
    for item in text.split(","):
        target, _, at = item.strip().partition("@")
        try:
            fraction = float(at)
        except ValueError:
            fraction = -1.0
        if target not in get_args(Target) or not 0 <= fraction < 1:
            raise ValueError(
                f"{item!r} is not broker@FRACTION or transformer@FRACTION with a fraction from 0 to below 1"
            )
        kills.append(Kill(fraction, "broker" if target == "broker" else "transformer", aimed=True))
    return tuple(sorted(kills))


def random_schedule(seed: int, brokers: int = 1, transformers: int = 2) -> tuple[Kill, ...]:
    """That many kills, not aimed, at moments drawn from `seed`."""
    draw = random.Random(seed)
    targets: list[Target] = ["broker" for _ in range(brokers)]
    targets += ["transformer" for _ in range(transformers)]
    return tuple(sorted(Kill(draw.uniform(0.02, 0.95), target, draw.uniform(0.0, 0.3)) for target in targets))
