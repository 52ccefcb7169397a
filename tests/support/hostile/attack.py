"""What an attack is: a name, a function that runs it against a siege, and the settings of the attacked broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from support.hostile.siege import Siege

Run = Callable[[Siege, bool], Awaitable[None]]
"""(siege, whole): attack; with `whole` at full size, else in a few seconds."""


@dataclass(frozen=True)
class Attack:
    """One attack. `short`: its small form is part of `make test`."""

    name: str
    run: Run
    settings: tuple[str, ...] = ()
    descriptors: int = 0
    short: bool = False


ATTACKS: list[Attack] = []


def attack(name: str, *settings: str, descriptors: int = 0, short: bool = False) -> Callable[[Run], Run]:
    """Declare the decorated function as an attack."""

    def declare(run: Run) -> Run:
        ATTACKS.append(Attack(name, run, settings, descriptors, short))
        return run

    return declare
