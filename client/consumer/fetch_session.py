"""An incremental fetch session with one broker (KIP-227): only what changed travels. Sans-I/O.

Owns the session's id and epoch, and which partitions the broker has in it. A full request (epoch 0) asks for a new
session; id 0 in the answer means that the broker keeps none, then every request is full again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ..values import TopicPartition

INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1


class Wanted(NamedTuple):
    """What is fetched of a partition; equal values are not sent again within a session."""

    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    leader_epoch: int


class FetchSession:
    """A fetch session: `fill` each request, then report `succeeded` or `failed`."""

    __slots__ = ("_epoch", "_id", "_partitions")

    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, Wanted] = {}

    @property
    def partitions(self) -> Mapping[TopicPartition, Wanted]:
        """What the broker has after the last request."""
        return self._partitions

    def fill(self, request: FetchRequest, wanted: dict[TopicPartition, Wanted]) -> None:
        """Set session fields, topics and forgotten topics of a request for `wanted`."""
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
        """Take the broker's answer, which was without error."""
        if session_id == 0:
            self.reset()
        elif self._epoch == INITIAL_EPOCH or session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = self._epoch % MAX_EPOCH + 1

    def failed(self, *, known_there: bool) -> None:
        """Begin anew with the next request; `known_there`: tell the broker to close the old session with it."""
        self._epoch = INITIAL_EPOCH
        if not known_there:
            self._id = 0

    def reset(self) -> None:
        """Forget the session: the connection or the broker is another."""
        self._id, self._epoch, self._partitions = 0, INITIAL_EPOCH, {}
