"""Checks and encodes many commits in slices. All of them are then appended in a single event-loop turn.

Prepared commits have no effect until they are appended. An encoded offset contains the id of its topic and the claim
(`claim.py`) on its partition. Either may be outdated by then, because topics and claims may change between the slices.
So `is_current` must be called directly before the commits are appended, in the same event-loop turn: it checks that
topics and claims have not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ....protocol.batch_header import HEADER_SIZE
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records import encode_record
from ...topic_names import OFFSETS_TOPIC
from ..claim import Claim, TopicPartition
from .offsets import OffsetAndMetadata
from .records import encode_offset, offset_key

if TYPE_CHECKING:
    from ...metadata import Metadata

COMMITS_AT_ONCE: Final = 25
"""How many commits are prepared before other tasks may run."""

ENCODING_UNITS: Final = 20
"""The cost of encoding one offset, in units of work (`steps.py`)."""


class PreparedCommit:
    """The commits of one request: an error code for each, and the encoded records of the valid commits.

    `partitions` are all partitions of the request. If the records exceed `largest_batch` bytes, the preparation ends
    early, and none of the commits may be appended.
    """

    __slots__ = (
        "_claims",
        "_is_claimed",
        "_size",
        "_topic_ids",
        "codes",
        "group_id",
        "largest_batch",
        "offsets",
        "partitions",
        "records",
    )

    def __init__(self, group_id: str, largest_batch: int) -> None:
        self.group_id = group_id
        self.largest_batch = largest_batch
        self.codes: list[ErrorCode] = []
        self.partitions: dict[TopicPartition, None] = {}
        self.offsets: list[tuple[TopicPartition, OffsetAndMetadata]] = []
        self.records: list[bytes] = []
        self._topic_ids: dict[str, bytes] = {}
        self._claims: list[Claim | None] = []
        self._is_claimed = False
        self._size = HEADER_SIZE

    @property
    def is_too_large(self) -> bool:
        """Whether the records are too large for one batch."""
        return self._size > self.largest_batch

    def check_size(self) -> None:
        """Raise KafkaError UNKNOWN_SERVER_ERROR, as an append would, if the records do not fit into one batch."""
        if self.is_too_large:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The offsets committed for group {self.group_id!r} need a batch of more than {self.largest_batch}"
                f" bytes, the largest that {OFFSETS_TOPIC} accepts. Commit fewer partitions at a time, or raise the"
                " topic's max.message.bytes.",
            )

    def add(self, partition: TopicPartition, offset: OffsetAndMetadata, claim: Claim | None) -> None:
        """Encode a valid commit. `claim` is the claim in force on the partition, or None."""
        record = encode_record(0, len(self.records), offset_key(self.group_id, partition), encode_offset(offset))
        self.offsets.append((partition, offset))
        self.records.append(record)
        self._size += len(record)
        # if the topic's id differs between commits, the first id is outdated, and `is_current` returns False
        self._topic_ids.setdefault(partition[0], offset.topic_id)
        self._claims.append(claim)
        self._is_claimed = self._is_claimed or claim is not None

    def is_current(self, metadata: Metadata, claims: Mapping[TopicPartition, Claim]) -> bool:
        """Whether the topics and claims are still the same as when the records were encoded."""
        for name, topic_id in self._topic_ids.items():
            topic = metadata.topic(name)
            if topic is None or topic.topic_id != topic_id:
                return False
        if not (claims or self._is_claimed):
            return True
        return all(
            claims.get(partition) == made for (partition, _), made in zip(self.offsets, self._claims, strict=True)
        )
