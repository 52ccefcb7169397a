"""`SubscriptionState`: a consumer's subscription, its assigned partitions, and its position in each of them.

It owns the positions and sends no requests. The coordinator assigns partitions, and the fetcher reads and advances
positions.

Invariants: only an assigned partition has a state. A state whose position was replaced (seek, reset, new assignment)
has another `incarnation`, so that responses to earlier requests are recognised and dropped. `position` is the offset
after the last record returned to the application. `fetch_offset` is the offset after the last buffered record, and
never below `position`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Final

from ...protocol.schema import NO_UUID
from ..errors import IllegalStateError
from ..values import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""The numbers that ListOffsets accepts in place of a timestamp, for the start and the end of a partition."""

_incarnations = count(1)


class PartitionState:
    """The state of an assigned partition."""

    __slots__ = (
        "blocked",
        "buffered_bytes",
        "failures",
        "fetch_offset",
        "high_watermark",
        "incarnation",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "passed_over",
        "paused",
        "position",
        "reset_to",
        "revoking",
        "topic_id",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        self.fetch_offset = -1
        self.leader_epoch = -1
        """Leader epoch of the last returned record. A commit contains it, so that a truncated log can be detected."""
        self.paused = False
        self.passed_over = False
        """Whether the application's last call asked only for other partitions. The partition's buffered records must
        then not hold up the others.
        """
        self.revoking = False
        """Whether the partition is being given up, and the listener is being called. Meanwhile no records are returned.
        """
        self.topic_id = NO_UUID
        """Id of the topic from which the position was fetched. A recreated topic has another id."""
        self.reset_to: int | None = None
        """A timestamp (EARLIEST or LATEST) whose offset must be looked up before the next fetch, or None."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.buffered_bytes = 0
        self.failures = 0
        """Number of consecutive fetches that failed with a temporary error. While `blocked`, the next fetch waits."""
        self.blocked = False
        self.incarnation = next(_incarnations)

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at `offset`. Drop the buffered records and the responses to fetches under way."""
        self.incarnation = next(_incarnations)
        self.position = self.fetch_offset = offset
        self.leader_epoch = leader_epoch
        self.topic_id = NO_UUID
        self.reset_to = None
        self.buffered_bytes = 0

    def reset(self, timestamp: int) -> None:
        """Look up the position of a timestamp (EARLIEST or LATEST) before the next fetch."""
        self.incarnation = next(_incarnations)
        self.position = None
        self.fetch_offset = -1
        self.leader_epoch = -1
        self.topic_id = NO_UUID
        self.reset_to = timestamp
        self.buffered_bytes = 0

    def forget_position(self) -> None:
        """Read the group's committed offset again before the next fetch."""
        self.incarnation = next(_incarnations)
        self.position = self.reset_to = None
        self.fetch_offset = self.leader_epoch = -1
        self.topic_id = NO_UUID
        self.buffered_bytes = 0

    def refetch(self) -> None:
        """Drop the buffered records and the responses to fetches under way, and fetch again from the position."""
        if self.position is not None:
            topic_id = self.topic_id
            self.seek(self.position, self.leader_epoch)
            self.topic_id = topic_id

    @property
    def fetchable(self) -> bool:
        """Whether records may be fetched and returned now."""
        return self.position is not None and not self.paused and not self.revoking


class SubscriptionState:
    """The subscription of a consumer, its assigned partitions, and the state of each."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.assigned: dict[TopicPartition, PartitionState] = {}
        self.manual = False
        self.generation = 0
        """Number of times that the subscribed topics have changed."""

    # -- the subscription

    @property
    def automatic(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.pattern is not None or bool(self.topics)

    def wanted_topics(self) -> frozenset[str]:
        """Return the topics of the subscription, or of the manually assigned partitions."""
        return frozenset(one.topic for one in self.assigned) if self.manual else self.topics

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics, whose partitions the group shares."""
        self._only(manual=False, pattern=False)
        self._want(frozenset(topics))

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics whose whole name matches the pattern. `matched` sets these topics."""
        self._only(manual=False, pattern=True)
        self.pattern = pattern

    def matched(self, topics: Iterable[str]) -> bool:
        """Set the topics that match the pattern now; return whether the set has changed."""
        assert self.pattern is not None
        found = frozenset(name for name in topics if self.pattern.fullmatch(name))
        return self._want(found)

    def unsubscribe(self) -> None:
        """End the subscription, and give up all partitions."""
        self.pattern = None
        self.manual = False
        self.assigned = {}
        self._want(frozenset())

    def assign_manually(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions without a group. Partitions that stay assigned keep their positions."""
        if self.automatic:
            raise IllegalStateError("assign() and subscribe() cannot be combined: unsubscribe() first")
        self.manual = True
        self.assign(partitions)

    def _only(self, *, manual: bool, pattern: bool) -> None:
        if self.manual and not manual:
            raise IllegalStateError("subscribe() and assign() cannot be combined: unsubscribe() first")
        if pattern and self.topics and self.pattern is None:
            raise IllegalStateError("a pattern and a list of topics cannot be combined: unsubscribe() first")
        if not pattern and self.pattern is not None:
            raise IllegalStateError("a list of topics and a pattern cannot be combined: unsubscribe() first")

    def _want(self, topics: frozenset[str]) -> bool:
        if topics == self.topics:
            return False
        self.topics = topics
        self.generation += 1
        return True

    # -- the assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions. Partitions that stay assigned keep their states."""
        self.assigned = {one: self.assigned.get(one) or PartitionState(one) for one in sorted(set(partitions))}

    def state(self, partition: tuple[str, int]) -> PartitionState:
        """Return the state of an assigned partition. Raises IllegalStateError for any other partition."""
        state = self.assigned.get(TopicPartition(*partition))
        if state is None:
            raise IllegalStateError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return state

    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (position, leader epoch of the last record) of every partition that has a position."""
        return {
            one: (state.position, state.leader_epoch)
            for one, state in self.assigned.items()
            if state.position is not None
        }
