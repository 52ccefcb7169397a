"""Groups that are deleted while transactions have offsets of them pending: what begins anew begins at the beginning.

The outputs of a transaction that is decided after the deletion are those of the group as it was; its offsets are gone
with the group, and must not come back as those of the next one.
"""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.broker.coordinator.group.offsets import OffsetStore
from support.simulation.scenario import Event, Scenario
from support.simulation.worker import WorkerPlan
from support.simulation.world import history

SEEDS = 6
DIE, LEAVE, STAND_STILL = range(3)


def deleted(kind: str, how: int, seed: int) -> Scenario:
    """Two workers of a group that is deleted in the middle of a transaction, as soon as it has no members."""
    worker = WorkerPlan(kind, timeout_ms=4000, session_ms=800)
    return Scenario(seed, (worker, worker), (Event(0.5, "delete group", how),), length_s=3.0)


@pytest.mark.parametrize("how", [DIE, LEAVE, STAND_STILL])
@pytest.mark.parametrize("kind", ["kip447", "tv2", "tv2, static", "aware", "session"])
def test_a_group_that_was_deleted_begins_anew(kind: str, how: int) -> None:
    for seed in range(SEEDS):
        history(deleted(kind, how, seed))


def test_pending_offsets_that_outlive_their_group_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_pending(store: Any, group_id: str) -> None:
        store._committed.pop(group_id, None)

    def several() -> None:
        for seed in range(5 * SEEDS):
            history(deleted("tv2", STAND_STILL, seed))

    monkeypatch.setattr(OffsetStore, "remove_group", keep_pending)
    with pytest.raises(AssertionError, match=r"input|begins at"):
        several()
