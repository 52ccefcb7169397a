"""Keep incremental fetch sessions (KIP-227): the broker remembers a consumer's partitions and sends only their changes.

This module owns the sessions and decides which partitions a response must contain. Sessions are a cache with a limited
number of sessions and partitions; the client of a removed session sends a full request again. Other modules read the
logs and wait for data. No function here awaits, and the caller passes the time. Requests for many partitions are
processed in steps.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from ..scheduling.steps import Steps
from ..topic_names import MAX_LENGTH

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
EVICTION_AGE_S: Final = 120.0
"""A session that has not been used for this many seconds may be replaced by a new one (Kafka's default)."""

FIRST_TOPIC_ID_VERSION: Final = 13

_TARGETS_PER_STEP: Final = 50
_FREED_PER_STEP: Final = 500

Key = tuple[str | bytes, int]
"""The key of a partition in a session: (topic name, or topic id from v13 on; partition index)."""


class FetchTarget:
    """One partition that a client fetches, and the offsets that the last response reported for it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "known_high_watermark",
        "known_log_start_offset",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "topic",
    )

    def __init__(self, topic: str | bytes, asked: FetchPartition) -> None:
        self.topic = topic
        self.partition = asked.partition
        self.known_high_watermark = -1
        self.known_log_start_offset = -1
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def update(self, asked: FetchPartition) -> None:
        """Update the target from a later request for the partition."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    @property
    def key(self) -> Key:
        """The key of the target in its session."""
        return self.topic, self.partition

    def worth_telling(self, data: PartitionData) -> bool:
        """Remember the offsets in `data`. Return whether an incremental response must contain the partition."""
        changed = bool(
            data.records
            or data.error_code
            or data.high_watermark != self.known_high_watermark
            or data.log_start_offset != self.known_log_start_offset
            or data.diverging_epoch.epoch >= 0
        )
        failed = data.error_code != 0
        # After an error, the next successful response must contain the partition even if nothing changed.
        self.known_high_watermark = -1 if failed else data.high_watermark
        self.known_log_start_offset = -1 if failed else data.log_start_offset
        return changed


class FetchSession:
    """The session of one client. `targets` are its partitions in the order in which they are fetched."""

    __slots__ = ("epoch", "id", "last_used", "targets", "uses_topic_ids")

    def __init__(self, id: int, targets: OrderedDict[Key, FetchTarget], uses_topic_ids: bool, now: float) -> None:
        self.id = id
        self.epoch = 1
        self.targets = targets
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now

    def advance(self, now: float) -> None:
        """Begin the session's next epoch, because a request has been accepted at time `now`."""
        self.epoch = 1 if self.epoch >= MAX_EPOCH else self.epoch + 1
        self.last_used = now

    def served(self, target: FetchTarget) -> None:
        """Move a partition that returned records to the end of the order, so that byte limits starve no partition."""
        if target.key in self.targets:
            self.targets.move_to_end(target.key)


class FetchPlan:
    """The partitions of one Fetch request, and the kind of its response.

    The response is incremental if `incremental` is true. Otherwise it is full, and `session` is None or new.
    """

    __slots__ = ("incremental", "session", "session_id", "targets")

    def __init__(self, targets: list[FetchTarget], session: FetchSession | None, incremental: bool) -> None:
        self.targets = targets
        self.session = session
        self.session_id = session.id if session is not None else 0
        self.incremental = incremental


def _add_targets(targets: dict[Key, FetchTarget], request: FetchRequest, by_id: bool) -> Steps[bool]:
    """Add a full request's partitions to `targets`. If a partition is repeated, its last entry counts, as in Kafka.

    Return whether a session may keep the partitions.
    """
    may_be_kept = True
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        may_be_kept &= _may_be_kept(name)
        for start in range(0, len(topic.partitions), _TARGETS_PER_STEP):
            rows = topic.partitions[start : start + _TARGETS_PER_STEP]
            for asked in rows:
                targets[name, asked.partition] = FetchTarget(name, asked)
            yield len(rows)
        yield 1
    return may_be_kept


def _may_be_kept(name: str | bytes) -> bool:
    """Return whether a session may keep this topic name or id. A name that is too long for a topic is not kept."""
    return len(name) <= MAX_LENGTH


class FetchSessionCache:
    """The sessions of all clients: at most `slots` sessions, with at most `max_partitions` partitions in total.

    A full request with a topic name that is too long for a topic is answered without a session, because a session would
    keep the name in memory.
    """

    def __init__(self, slots: int, max_partitions: int, random_ids: random.Random | None = None) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._partitions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._random = random_ids or random.Random()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together."""
        return self._partitions

    def plan(self, request: FetchRequest, version: int, now: float) -> Steps[FetchPlan]:
        """Return the plan for a request; `now` is in seconds of a monotonic clock.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            yield from self._close(request.session_id)
            by_id = version >= FIRST_TOPIC_ID_VERSION
            if request.session_epoch == FINAL_EPOCH or version < 7:
                asked: dict[Key, FetchTarget] = {}
                yield from _add_targets(asked, request, by_id)
                return FetchPlan(list(asked.values()), None, incremental=False)
            targets: OrderedDict[Key, FetchTarget] = OrderedDict()
            may_be_kept = yield from _add_targets(targets, request, by_id)
            session = (yield from self._open(targets, by_id, now)) if targets and may_be_kept else None
            return FetchPlan(list(targets.values()), session, incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= FIRST_TOPIC_ID_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.advance(now)
        self._sessions.move_to_end(session.id)
        yield from self._apply(request, session)
        if not self._has(session):  # another request has closed the session between two steps
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.targets:
            yield from self._close(session.id)
            return FetchPlan([], None, incremental=True)
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def drop_new(self, plan: FetchPlan) -> Steps[None]:
        """Close the session that a request has just created, because the request will not be executed."""
        if plan.session is not None and not plan.incremental:
            plan.targets = []
            yield from self._close(plan.session_id)

    def _apply(self, request: FetchRequest, session: FetchSession) -> Steps[None]:
        """Apply an incremental request to its session: add, update and remove partitions."""
        for topic in request.topics:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for asked in topic.partitions:
                known = session.targets.get((name, asked.partition))
                if known is not None:
                    known.update(asked)
                else:
                    yield from self._grow(session, name)
                    session.targets[name, asked.partition] = FetchTarget(name, asked)
                yield 1
            yield 1
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                if session.targets.pop((name, index), None) is not None and self._has(session):
                    self._partitions -= 1
                yield 1
            yield 1

    def _grow(self, session: FetchSession, name: str | bytes) -> Steps[None]:
        """Count one more partition of the session.

        If the cache has no room for the partition, or the topic's name is too long, close the session. If the session
        is closed, raise KafkaError FETCH_SESSION_ID_NOT_FOUND, so that the client sends a full request.
        """
        if self._partitions >= self._max_partitions or not _may_be_kept(name):
            yield from self._close(session.id)
        if not self._has(session):  # another request may have closed the session between two steps
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._partitions += 1

    def _has(self, session: FetchSession) -> bool:
        return self._sessions.get(session.id) is session

    def _close(self, session_id: int) -> Steps[None]:
        """Remove a session, if it exists. Then free the memory of its targets, in several steps."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            targets, session.targets = session.targets, OrderedDict()
            self._partitions -= len(targets)
            while targets:
                for _ in range(min(_FREED_PER_STEP, len(targets))):
                    targets.popitem()
                yield _FREED_PER_STEP // 5

    def _open(
        self, targets: OrderedDict[Key, FetchTarget], uses_topic_ids: bool, now: float
    ) -> Steps[FetchSession | None]:
        """Return a new session that owns `targets`, or None if the cache has no room and no session may be replaced."""
        if len(targets) > self._max_partitions:
            return None
        while len(self._sessions) >= self._slots or self._partitions + len(targets) > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < EVICTION_AGE_S:
                return None
            yield from self._close(oldest.id)
        self._partitions += len(targets)
        id = self._random.randint(1, MAX_EPOCH)
        while id in self._sessions:
            id = self._random.randint(1, MAX_EPOCH)
        session = self._sessions[id] = FetchSession(id, targets, uses_topic_ids, now)
        return session
