"""Check retention: which records of which topics may be deleted, and when. Every deletion is recorded and judged.

The rules do not depend on segments. A record may be deleted if it is older than retention.ms, or if at least
retention.bytes follow it, but not before read_committed readers could see it. At rest, everything that has to be
deleted is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

from oncelog.broker.log import PartitionLog
from oncelog.broker.log.retention import Retention as LogRetention

if TYPE_CHECKING:
    from .world import World

CHECK_MS = 150
"""The interval at which the broker looks for records to delete."""

BACK_MS = 1500
"""The wall clock may go back by less than this, so that a record that was too old may become young enough again."""


@dataclass(frozen=True)
class Retention:
    """The retention of a topic; -1: no limit. `of_lone`: the topic of lone producers has the same limit of size."""

    ms: int = -1
    bytes: int = -1
    of_lone: bool = False

    @property
    def topic(self) -> dict[str, str]:
        """The configs of the outputs."""
        return self._by_size | {"retention.ms": str(self.ms), "message.timestamp.type": "LogAppendTime"}

    @property
    def lone_topic(self) -> dict[str, str]:
        """The configs of the lone producers' topic. Its timestamps identify the writers, so it has no limit of time."""
        return self._by_size if self.of_lone else {}

    @property
    def _by_size(self) -> dict[str, str]:
        return {"segment.bytes": "1024", "retention.bytes": str(self.bytes)}


RETENTIONS = (
    Retention(bytes=0, of_lone=True),
    Retention(bytes=1000, of_lone=True),
    Retention(ms=200),
    Retention(ms=1500, bytes=2000),
    Retention(ms=60_000),
)
"""Only a few, because each needs a separate disk. The last one takes effect if the clock jumps by an hour."""

RETAINED = (1, 4, 7, 9)
"""The remainders modulo 17 of the seeds whose histories have retention."""


def retention_of(seed: int) -> Retention | None:
    """Return the retention of a seed, drawn from a separate random stream, or None."""
    return Random(f"retention of {seed}").choice(RETENTIONS) if seed % 17 in RETAINED else None


@contextmanager
def observed(world: World) -> Iterator[None]:
    """Within this context, call `world.before_deletion(log, offset)` before retention deletes anything."""
    advance = LogRetention._advance_start

    def judged(retention: LogRetention, offset: int, reason: str) -> int:
        logs = world.broker.broker.log_manager.logs()
        log = next(log for log in logs if log.retention is retention)
        if reason == "retention" and log.failure is None:
            world.before_deletion(log, offset)
        return advance(retention, offset, reason)

    with mock.patch.object(LogRetention, "_advance_start", judged):
        yield


def may_go(log: PartitionLog, offset: int) -> None:
    """Check that everything below an offset may be deleted now."""
    assert offset <= log.last_stable_offset, (
        f"retention deletes {log.name} up to {offset}, readers may see it up to {log.last_stable_offset}"
    )
    now_ms = log.clock.now_ms()
    config = log.config
    batches = list(log.batches(log.log_start_offset))
    left = sum(len(batch) for _, batch in batches)
    for header, batch in batches:
        if header.base_offset >= offset:
            break
        left -= len(batch)
        age_ms = now_ms - header.max_timestamp
        too_old = 0 <= config.retention_ms < age_ms
        # The active segment is never deleted for its size, and only a power failure leaves it empty.
        in_active = header.next_offset == log.log_end_offset and log.segments.active.size > 0
        stays = in_active and not 0 <= config.retention_ms < age_ms + BACK_MS
        too_much = 0 <= config.retention_bytes <= left and not stays
        assert too_old or too_much, (
            f"retention deletes {log.name} up to {offset}: {header.base_offset} is {age_ms} ms old, {left} bytes follow"
        )


def has_gone(log: PartitionLog) -> None:
    """Check that nothing is left that retention should have deleted seconds ago."""
    config = log.config
    if "delete" not in config.cleanup_policy or len(log.segments) == 1:
        return
    first = log.segments.first
    age_ms = log.clock.now_ms() - first.max_timestamp
    assert not 0 <= config.retention_ms < age_ms - 10 * CHECK_MS, f"{log.name} keeps what is {age_ms} ms old"
    rest = log.size - first.size
    assert not 0 <= config.retention_bytes <= rest, f"{log.name} keeps {first.size} bytes more than {rest}"
