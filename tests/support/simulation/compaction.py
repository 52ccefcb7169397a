"""Keep the records of the offsets topic that compaction removes, because the checks need all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from oncelog.broker.log import PartitionLog
from oncelog.broker.log.cleaner import Cleaner, CleaningPlan
from oncelog.broker.scheduling.steps import Steps
from oncelog.broker.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from .world import World


@contextmanager
def kept(world: World) -> Iterator[None]:
    """Within this context, call `world.before_compaction(log, offset)` before the offsets topic is compacted."""
    original = Cleaner.plan_in_steps

    def plan_in_steps(
        cleaner: Cleaner, log: PartitionLog, first_dirty: int, now_ms: int, *, force: bool = False
    ) -> Steps[CleaningPlan | None]:
        plan = yield from original(cleaner, log, first_dirty, now_ms, force=force)
        if plan is not None and log.topic == OFFSETS_TOPIC:
            world.before_compaction(log, plan.end_offset)
        return plan

    with mock.patch.object(Cleaner, "plan_in_steps", plan_in_steps):
        yield
