"""Attacks of a client that need no rights: the broker bounds what they cost, and its other clients hardly notice.

`make hostile` runs all of them at full size and also asserts how long a neighbour waits; `make test` runs small forms
of those marked `short`, and asserts no times.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hostile import connections, fuzz, groups, handshakes, logins, records, requests, tokens
from support.hostile.attack import ATTACKS, Attack
from support.hostile.siege import Outcome, Siege

MODULES = (requests, records, groups, connections, handshakes, logins, tokens, fuzz)
"""Imported because each declares its attacks."""

PEAK_MB = 512
SMALL_PEAK_MB = 400
P99_MS = 100
WORST_MS = 500

every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
short_attacks = pytest.mark.parametrize(
    "attack", [attack for attack in ATTACKS if attack.short], ids=lambda attack: attack.name
)


async def besiege(attack: Attack, directory: Path, outcomes: list[tuple[str, Outcome]], *, whole: bool) -> Outcome:
    """Run an attack; what must hold whatever the machine is asserted here."""
    siege = Siege(
        directory,
        *attack.settings,
        descriptors=attack.descriptors,
        sasl=attack.sasl,
        tls=attack.tls,
        oauth=attack.oauth,
    )
    try:
        async with siege:
            await attack.run(siege, whole)
    finally:
        outcomes.append((attack.name, siege.outcome))
    outcome = siege.outcome
    assert outcome.failures == [], "the neighbour was refused"
    assert outcome.peak_mb < PEAK_MB
    assert outcome.exit_code == 0
    assert outcome.tracebacks == 0
    return outcome


@pytest.mark.slow
@pytest.mark.timeout(600)
@every_attack
async def test_an_attack_neither_grows_the_broker_nor_holds_up_its_neighbour(
    attack: Attack, tmp_path: Path, outcomes: list[tuple[str, Outcome]]
) -> None:
    outcome = await besiege(attack, tmp_path, outcomes, whole=True)
    assert outcome.p99 <= P99_MS
    assert outcome.worst <= WORST_MS


@short_attacks
async def test_a_small_attack_leaves_the_broker_in_order(
    attack: Attack, tmp_path: Path, outcomes: list[tuple[str, Outcome]]
) -> None:
    outcome = await besiege(attack, tmp_path, outcomes, whole=False)
    assert outcome.peak_mb < SMALL_PEAK_MB
