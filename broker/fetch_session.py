"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer fetches and only says what changed.

Owns the sessions and which partitions an answer must mention. Sessions are a cache, bounded in number and in
partitions: one that is gone makes the client send a full request again. Reading and waiting are not done here. No
awaits, and the time is passed in; requests of many partitions are taken over in steps.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from .steps import Steps

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
EVICTION_AGE_S: Final = 120.0
"""A session may be evicted for a new one when it was not used for so long (Kafka's default)."""

FIRST_TOPIC_ID_VERSION: Final = 13

_TARGETS_PER_STEP: Final = 50

Key = tuple[str | bytes, int]
"""(topic name, or topic id from v13 on; partition index)"""


class FetchTarget:
    """One partition that is being fetched, and what the client was last told of it."""

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
        """Take over what a later request says of the partition."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    @property
    def key(self) -> Key:
        """Its place in a session."""
        return self.topic, self.partition

    def worth_telling(self, data: PartitionData) -> bool:
        """Whether an incremental answer must mention it; remembers what is told."""
        changed = bool(
            data.records
            or data.error_code
            or data.high_watermark != self.known_high_watermark
            or data.log_start_offset != self.known_log_start_offset
            or data.diverging_epoch.epoch >= 0
        )
        failed = data.error_code != 0
        # After an error the next good answer must be told, whatever it says.
        self.known_high_watermark = -1 if failed else data.high_watermark
        self.known_log_start_offset = -1 if failed else data.log_start_offset
        return changed


class FetchSession:
    """One client's session. `targets` are in fetch order."""

    __slots__ = ("epoch", "id", "last_used", "targets", "uses_topic_ids")

    def __init__(self, id: int, targets: OrderedDict[Key, FetchTarget], uses_topic_ids: bool, now: float) -> None:
        self.id = id
        self.epoch = 1
        self.targets = targets
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now

    def advance(self, now: float) -> None:
        """The next epoch begins: a request was accepted."""
        self.epoch = 1 if self.epoch >= MAX_EPOCH else self.epoch + 1
        self.last_used = now

    def served(self, target: FetchTarget) -> None:
        """The partition gave records: it goes behind the others, so that a byte limit starves none."""
        if target.key in self.targets:
            self.targets.move_to_end(target.key)


class FetchPlan:
    """What one Fetch request asks for, and how to answer: full (`session` None or fresh) or incremental."""

    __slots__ = ("incremental", "session", "session_id", "targets")

    def __init__(self, targets: list[FetchTarget], session: FetchSession | None, incremental: bool) -> None:
        self.targets = targets
        self.session = session
        self.session_id = session.id if session is not None else 0
        self.incremental = incremental


def _asked(request: FetchRequest, by_id: bool) -> Iterator[tuple[str | bytes, FetchPartition]]:
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            yield name, asked


def _add_targets(targets: dict[Key, FetchTarget], request: FetchRequest, by_id: bool) -> Steps[None]:
    """Add what a full request asks for. Of a partition that is named several times the last one counts, as in Kafka."""
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for start in range(0, len(topic.partitions), _TARGETS_PER_STEP):
            rows = topic.partitions[start : start + _TARGETS_PER_STEP]
            for asked in rows:
                targets[name, asked.partition] = FetchTarget(name, asked)
            yield len(rows)


class FetchSessionCache:
    """The sessions, least recently used first: at most `slots`, with at most `max_partitions` together."""

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
        """The partitions in all sessions together."""
        return self._partitions

    def plan(self, request: FetchRequest, version: int, now: float) -> Steps[FetchPlan]:
        """Work out what a request asks for; `now` in seconds of a monotonic clock.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            by_id = version >= FIRST_TOPIC_ID_VERSION
            if request.session_epoch == FINAL_EPOCH or version < 7:
                asked: dict[Key, FetchTarget] = {}
                yield from _add_targets(asked, request, by_id)
                return FetchPlan(list(asked.values()), None, incremental=False)
            targets: OrderedDict[Key, FetchTarget] = OrderedDict()
            yield from _add_targets(targets, request, by_id)
            session = self._open(targets, by_id, now) if targets else None
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
        if not session.targets:
            self._close(session.id)
            return FetchPlan([], None, incremental=True)
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def _apply(self, request: FetchRequest, session: FetchSession) -> Steps[None]:
        """Take over an incremental request: new, changed and forgotten partitions."""
        for name, asked in _asked(request, session.uses_topic_ids):
            known = session.targets.get((name, asked.partition))
            if known is not None:
                known.update(asked)
            else:
                self._grow(session)
                session.targets[name, asked.partition] = FetchTarget(name, asked)
            yield 1
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                if session.targets.pop((name, index), None) is not None and self._has(session):
                    self._partitions -= 1
                yield 1

    def _grow(self, session: FetchSession) -> None:
        """Make room for one more partition, or give the session up: its client then sends a full request."""
        if self._partitions >= self._max_partitions:
            self._close(session.id)
        if not self._has(session):  # another request may have closed it between two steps
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._partitions += 1

    def _has(self, session: FetchSession) -> bool:
        return self._sessions.get(session.id) is session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.targets)

    def _open(self, targets: OrderedDict[Key, FetchTarget], uses_topic_ids: bool, now: float) -> FetchSession | None:
        """A new session, which owns `targets`; None where there is no room and no session is old enough to make it."""
        if len(targets) > self._max_partitions:
            return None
        while len(self._sessions) >= self._slots or self._partitions + len(targets) > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < EVICTION_AGE_S:
                return None
            self._close(oldest.id)
        self._partitions += len(targets)
        id = self._random.randint(1, MAX_EPOCH)
        while id in self._sessions:
            id = self._random.randint(1, MAX_EPOCH)
        session = self._sessions[id] = FetchSession(id, targets, uses_topic_ids, now)
        return session
