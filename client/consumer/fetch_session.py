"""An incremental fetch session with one broker (KIP-227): requests and responses contain only changes. Sans-I/O.

`FetchSession` owns the session's id and epoch, and knows which partitions the broker has in the session. A full request
(epoch 0) requests a new session. If the response has id 0, the broker keeps no session, and every request is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ..values import TopicPartition

INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1


class Wanted(NamedTuple):
    """The parameters of a partition's fetch. Within a session, parameters that have not changed are not sent again."""

    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    leader_epoch: int


class FetchSession:
    """A fetch session: call `fill` for each request, then `succeeded` or `failed`."""

    __slots__ = ("_epoch", "_id", "_partitions")

    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, Wanted] = {}

    @property
    def partitions(self) -> Mapping[TopicPartition, Wanted]:
        """The partitions that the broker has in the session after the last request."""
        return self._partitions

    def fill(self, request: FetchRequest, wanted: dict[TopicPartition, Wanted]) -> None:
        """Set the session fields, topics and forgotten topics of a request for `wanted`."""
        known = self._partitions if self._epoch != INITIAL_EPOCH else {}
        topics: dict[tuple[str, bytes], FetchTopic] = {}
        for partition, want in wanted.items():
            if known.get(partition) != want:
                key = (partition.topic, want.topic_id)
                topic = topics.get(key)
                if topic is None:
                    topic = topics[key] = FetchTopic(topic=partition.topic, topic_id=want.topic_id)
                topic.partitions.append(
                    FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=want.leader_epoch,
                        fetch_offset=want.fetch_offset,
                        partition_max_bytes=want.max_bytes,
                    )
                )
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for partition, want in known.items():
            now = wanted.get(partition)
            if now is None or now.topic_id != want.topic_id:
                key = (partition.topic, want.topic_id)
                gone = forgotten.setdefault(key, ForgottenTopic(topic=partition.topic, topic_id=want.topic_id))
                gone.partitions.append(partition.partition)
        request.session_id = self._id
        request.session_epoch = self._epoch
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(forgotten.values())
        self._partitions = wanted

    def succeeded(self, session_id: int) -> None:
        """Continue the session after a response without an error. `session_id` is the session id in the response."""
        if session_id == 0:
            self.reset()
        elif self._epoch == INITIAL_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = self._epoch % MAX_EPOCH + 1

    def failed(self, *, known_there: bool) -> None:
        """Start a new session with the next request. With `known_there`, that request also closes the old session at
        the broker.
        """
        self._epoch = INITIAL_EPOCH
        if not known_there:
            self._id = 0

    def reset(self) -> None:
        """Forget the session, because the connection or the broker has changed."""
        self._id, self._epoch, self._partitions = 0, INITIAL_EPOCH, {}
