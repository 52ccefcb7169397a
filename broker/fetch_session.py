"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer fetches and only says what changed.

Owns the sessions and which partitions an answer must mention. Sessions are a cache: one that is gone makes the client
send a full request again. Reading and waiting are not done here. Plain code without awaits, time passed in.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
EVICTION_AGE_S: Final = 120.0
"""A session may be evicted for a new one when it was not used for so long (Kafka's default)."""

FIRST_TOPIC_ID_VERSION: Final = 13

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
        self.update(asked)

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
        failed = data.error_code != ErrorCode.NONE
        # After an error the next good answer must be told, whatever it says.
        self.known_high_watermark = -1 if failed else data.high_watermark
        self.known_log_start_offset = -1 if failed else data.log_start_offset
        return changed


class FetchSession:
    """One client's session. `targets` are in fetch order."""

    __slots__ = ("epoch", "id", "last_used", "targets", "uses_topic_ids")

    def __init__(self, id: int, targets: Iterable[FetchTarget], uses_topic_ids: bool, now: float) -> None:
        self.id = id
        self.epoch = 1
        self.targets: OrderedDict[Key, FetchTarget] = OrderedDict((target.key, target) for target in targets)
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now

    def apply(self, request: FetchRequest) -> None:
        """Take over an incremental request: new, changed and forgotten partitions."""
        for topic in request.topics:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for asked in topic.partitions:
                known = self.targets.get((name, asked.partition))
                if known is None:
                    self.targets[name, asked.partition] = FetchTarget(name, asked)
                else:
                    known.update(asked)
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                self.targets.pop((name, index), None)
        self.epoch = 1 if self.epoch >= MAX_EPOCH else self.epoch + 1

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


def _targets(request: FetchRequest, version: int) -> list[FetchTarget]:
    by_id = version >= FIRST_TOPIC_ID_VERSION
    return [
        FetchTarget(topic.topic_id if by_id else topic.topic, asked)
        for topic in request.topics
        for asked in topic.partitions
    ]


class FetchSessionCache:
    """The sessions, least recently used first; at most `slots`."""

    def __init__(self, slots: int, random_ids: random.Random | None = None) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._random = random_ids or random.Random()

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int, now: float) -> FetchPlan:
        """Work out what a request asks for; `now` in seconds of a monotonic clock.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            targets = _targets(request, version)
            session = None
            if request.session_epoch == INITIAL_EPOCH and version >= 7 and targets:
                session = self._open(targets, version >= FIRST_TOPIC_ID_VERSION, now)
            return FetchPlan(targets, session, incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= FIRST_TOPIC_ID_VERSION):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.apply(request)
        session.last_used = now
        if not session.targets:
            del self._sessions[session.id]
            return FetchPlan([], None, incremental=True)
        self._sessions.move_to_end(session.id)
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def _open(self, targets: list[FetchTarget], uses_topic_ids: bool, now: float) -> FetchSession | None:
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < EVICTION_AGE_S:
                return None
            del self._sessions[oldest.id]
        id = self._random.randint(1, MAX_EPOCH)
        while id in self._sessions:
            id = self._random.randint(1, MAX_EPOCH)
        session = self._sessions[id] = FetchSession(id, targets, uses_topic_ids, now)
        return session
