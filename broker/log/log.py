"""What the rest of the broker knows of logs: the protocols `Log`, of one partition, and `Logs`, of all of them.

They are the seam between the broker and where records lie. `PartitionLog` and `LogManager` keep them in the files of a
data directory; the tests have a log in memory; others may keep them in an object store, with their order in a database.

Reads and look-ups may therefore have to wait. What is at hand is returned at once. Anything else comes in steps (see
`steps.py`), which run in slices and may wait for a future; a caller looks which of the two it was given, so that the
usual case costs neither a task nor a generator. Appending never waits: `append` accepts or refuses a batch in one step,
and `flushed` says when what was accepted is durable.

Whoever appends says under which leader epoch. A log refuses epochs older than that of its present owner (`take_over`),
so that a former owner that does not know better cannot write behind the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ...protocol.batch_header import BatchHeader
from ...protocol.control_records import ControlRecord
from ...protocol.errors import KafkaError
from ..descriptor_relief import Crowding
from ..ports import Buffer
from ..steps import Steps
from .batch_inspection import Inspection
from .log_config import LogConfig
from .producer_state import BatchMetadata, ProducerStateEntry
from .results import AppendOrigin, AppendResult, IsolationLevel, LogRead

TopicPartition = tuple[str, int]


class Producers(Protocol):
    """What a log knows of the producers that wrote to it."""

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """What is known of a producer id; the caller must not change it."""

    def entries(self) -> Iterable[ProducerStateEntry]:
        """All producers, in no order."""

    def open_transactions(self) -> list[ProducerStateEntry]:
        """The producers with an open transaction in this partition, oldest transaction first."""

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that `header` repeats, if it is one of the producer's last five."""

    def check(
        self, header: BatchHeader, marker: ControlRecord | None, origin: AppendOrigin, transaction_version: int
    ) -> None:
        """Raise KafkaError if the batch (with `marker` when it is a control batch) may not follow."""


class Log(Protocol):
    """The records of one partition, in order.

    At every moment log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset. Readers see what lies
    below the high watermark or, read_committed, below the last stable offset; nothing below is ever taken back.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def name(self) -> str:
        """Topic and partition, for messages."""

    @property
    def config(self) -> LogConfig: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the newest batch, -1 in an empty log."""

    @property
    def size(self) -> int:
        """Bytes of all records."""

    @property
    def failure(self) -> KafkaError | None:
        """Why nothing can be appended, None while that is not so. What is durable may still be read."""

    @property
    def producers(self) -> Producers: ...

    # --- owner

    def take_over(self, leader_epoch: int) -> None:
        """Refuse appends of older leader epochs from now on.

        Raises KafkaError FENCED_LEADER_EPOCH where a newer one has taken over.
        """

    def update_config(self, config: LogConfig) -> None:
        """Use other settings from the next operation on."""

    # --- append

    def inspection_of(self, batch: Buffer) -> Inspection:
        """The check of what is inside a client's batch, for `append`; raises KafkaError as `append` does."""

    def check_room(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR when a client's batch of that size would be refused for want of space."""

    def append(
        self,
        batches: Buffer,
        *,
        inspection: Inspection | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int = 0,
        transaction_version: int = 0,
        essential: bool = False,
    ) -> AppendResult:
        """Check, stamp and accept `batches`: all of it is in the log, or none and KafkaError says why.

        The offsets are binding once `flushed` has said that they are durable. `inspection`: that of a client's batch,
        ended; without it the batch is inspected here. `transaction_version`: see `ProducerStateManager.check`.
        `essential`: a coordinator's batch of any size, which may use the last part of the room. Raises
        NOT_LEADER_OR_FOLLOWER under an older leader epoch than that of the owner, and what is wrong with the batch, the
        producer or the storage.
        """

    def flushed(self, end_offset: int) -> asyncio.Future[None] | None:
        """None when everything below `end_offset` is as durable as `durability` asks; else a future of when it is.

        The future is shared by all who wait for the same flush (shield it). It fails with KafkaError
        KAFKA_STORAGE_ERROR when the flush does: what was appended may or may not survive.
        """

    # --- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        *,
        min_one: bool = True,
    ) -> LogRead | Steps[LogRead]:
        """Whole batches from `offset` on that readers of this isolation level may see, up to `max_bytes`.

        With `min_one` a first batch larger than that comes alone. What is not at hand is read in steps. Raises
        KafkaError OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, at once or in the steps.
        """

    def readable_bytes(
        self, offset: int, wanted: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> int:
        """How many bytes `read` could give from `offset` on, about, counted up to `wanted`.

        Answered at once. Where the log would have to look, it is `wanted`, for nobody should wait for what is there.
        Raises KAFKA_STORAGE_ERROR.
        """

    def find_offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> Steps[tuple[int, int, int]]:
        """Find (timestamp, offset, leader epoch) of the first visible record that is not older; all -1 if none is.

        Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp, -4 earliest local, -5
        latest tiered. Raises KafkaError KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE, INVALID_REQUEST.
        """

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest leader epoch not above `epoch`, where it ends); (-1, -1) when it is not known (KIP-101)."""

    def batches(self, offset: int | None = None, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """(header, whole batch) from the one that holds `offset` (the log start) up to `end` (the log end).

        Not limited by the high watermark: for coordinators, which replay what is there. Raises KAFKA_STORAGE_ERROR.
        """

    def windows(self) -> Iterator[bytes]:
        """All batches from the log start on, a portion of some ten kilobytes at a time, checksums verified.

        Not limited by the high watermark, as `batches`. Raises KAFKA_STORAGE_ERROR.
        """

    def delete_records_before(self, offset: int) -> int:
        """Make `offset` (-1: the high watermark) the log start; returns the log start offset, perhaps a larger one.

        It is on disk when `Logs.start_offsets_on_disk` says so. Raises KafkaError OFFSET_OUT_OF_RANGE when the
        offset is beyond the high watermark, KAFKA_STORAGE_ERROR.
        """

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        """Call `listener(log)` whenever the high watermark or the last stable offset has moved. It must not append."""

    def remove_listener(self, listener: Callable[[Any], None]) -> None: ...


class Logs(Protocol):
    """All logs of a broker.

    `offline`: partitions that were damaged, or lost, when they were loaded; they are neither read nor written.
    `lost`: partitions that are gone, though they were there up to that offset. Whether they are missed is for those to
    say who know the topics (`miss`, `forget`).
    """

    @property
    def offline(self) -> Mapping[TopicPartition, KafkaError]: ...

    @property
    def lost(self) -> Mapping[TopicPartition, int]: ...

    @property
    def failed(self) -> KafkaError | None:
        """Why nothing is appended or acknowledged any more in any log, None while that is not so."""

    @property
    def cluster_id(self) -> str:
        """22 characters, as Kafka's."""

    @property
    def path(self) -> str:
        """Where the logs are, for messages."""

    @property
    def crowding(self) -> Crowding:
        """Whether appends to many logs have to wait; a single append need not look."""

    def space(self) -> tuple[int, int]:
        """(all, usable) bytes of where the logs are; raises OSError."""

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, None if there is none; raises KAFKA_STORAGE_ERROR while it is offline."""

    def create(self, topic: str, partition: int, config: LogConfig) -> Log | Steps[Log]:
        """Make the log of a new partition; where that has to wait, in steps. Raises KAFKA_STORAGE_ERROR."""

    def holds(self, topic: str, partition: int) -> bool:
        """Whether anything of the partition is stored: it may be offline, or not fully deleted."""

    def delete(self, partitions: Iterable[TopicPartition]) -> Coroutine[Any, Any, None]:
        """Delete partitions, offline or not; their records are never shown again when this returns.

        Raises KAFKA_STORAGE_ERROR where that is not possible: call it again for the same partitions then.
        """

    async def start_offsets_on_disk(self) -> None:
        """Wait until the log start offsets that have moved so far are on disk; raises KAFKA_STORAGE_ERROR."""

    def logs(self) -> Iterator[Log]:
        """Every log that is not offline."""

    def miss(self, key: TopicPartition) -> None:
        """A lost partition belongs to a topic: it is offline instead of beginning anew at offset 0."""

    def forget(self, key: TopicPartition) -> None:
        """A lost partition belongs to no topic any more."""

    def holdings(self, besides: TopicPartition) -> str | None:
        """A partition that shows that there were logs before, other than `besides`; None where there were none."""
