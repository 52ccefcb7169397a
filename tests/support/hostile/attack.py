"""Define what an attack is: a name, a function that attacks a siege's broker, and the settings of this broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from support.hostile.siege import Siege

Run = Callable[[Siege, bool], Awaitable[None]]
"""A function (siege, whole) that attacks: at full size with `whole`, else for a few seconds."""


@dataclass(frozen=True)
class Attack:
    """One attack.

    `short` says whether its small form belongs to `make test`, `sasl` whether the broker has a listener with SASL, too,
    `tls` whether it has one with TLS, and `oauth` whether it has one with OAUTHBEARER in place of `sasl`.
    """

    name: str
    run: Run
    settings: tuple[str, ...] = ()
    descriptors: int = 0
    short: bool = False
    sasl: bool = False
    tls: bool = False
    oauth: bool = False


ATTACKS: list[Attack] = []


def attack(
    name: str,
    *settings: str,
    descriptors: int = 0,
    short: bool = False,
    sasl: bool = False,
    tls: bool = False,
    oauth: bool = False,
) -> Callable[[Run], Run]:
    """Declare the decorated function as an attack."""

    def declare(run: Run) -> Run:
        ATTACKS.append(Attack(name, run, settings, descriptors, short, sasl, tls, oauth))
        return run

    return declare
