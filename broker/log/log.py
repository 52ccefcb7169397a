"""Define the interface of logs for the rest of the broker: the protocols `Log` (one partition) and `Logs` (all).

These protocols separate the broker from the storage of records. `PartitionLog` and `LogManager` keep records in the
files of a data directory. The tests have a log in memory. Another implementation could keep records in an object store
and their order in a database.

Reads and look-ups may therefore have to wait. A result that is in memory, or needs only a short read, is returned
immediately. Otherwise the method returns steps (`steps.py`), which run in slices and may wait for a future. The caller
checks which of the two it received, so that the usual case needs neither a task nor a generator. Appends never wait:
`append` accepts or refuses a batch in one step, and `flushed` shows when an accepted batch is durable.

Each append names its leader epoch. A log refuses epochs older than that of its current owner (`take_over`), so that a
former owner cannot append after its successor has taken over, even if it has not learned of the successor yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ...protocol.batch_header import BatchHeader
from ...protocol.control_records import ControlRecord
from ...protocol.errors import KafkaError
from ..scheduling.steps import Steps
from ..system.descriptor_relief import Crowding
from ..system.ports import Buffer
from .batch_inspection import Inspection
from .log_config import LogConfig
from .producer_state import BatchMetadata, ProducerStateEntry
from .results import AppendOrigin, AppendResult, IsolationLevel, LogRead

TopicPartition = tuple[str, int]


class Producers(Protocol):
    """The state of the producers that wrote to a log."""

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer id, or None if it is unknown. The caller must not change the entry."""

    def entries(self) -> Iterable[ProducerStateEntry]:
        """Return the states of all producers, in no particular order."""

    def open_transactions(self) -> list[ProducerStateEntry]:
        """Return the producers with an open transaction in this partition, oldest transaction first."""

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return which of the producer's last five batches `header` repeats, or None if it repeats none of them."""

    def check(
        self, header: BatchHeader, marker: ControlRecord | None, origin: AppendOrigin, transaction_version: int
    ) -> None:
        """Raise KafkaError if the producer may not append this batch next. `marker`: the record of a control batch."""


class Log(Protocol):
    """The records of one partition, in order.

    At every moment log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset. Readers see the records
    below the high watermark; read_committed readers see only those below the last stable offset. Visible records never
    change.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def name(self) -> str:
        """The topic and the partition, as log and error messages name them."""

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
        """The newest leader epoch; -1 if the log has no batch and `take_over` has not been called."""

    @property
    def size(self) -> int:
        """The size of all batches, in bytes."""

    @property
    def failure(self) -> KafkaError | None:
        """The error that stops all appends, or None if the log works. It does not stop reads of durable records."""

    @property
    def producers(self) -> Producers: ...

    # --- owner

    def take_over(self, leader_epoch: int) -> None:
        """Make `leader_epoch` the current one, and refuse appends of older leader epochs from now on.

        The epoch begins at the log end offset.

        Raises KafkaError FENCED_LEADER_EPOCH if a newer leader epoch has taken over already.
        """

    def update_config(self, config: LogConfig) -> None:
        """Replace the log's settings. The new ones apply from the next operation on."""

    # --- append

    def inspection_of(self, batch: Buffer) -> Inspection:
        """Return an inspection of the records in a client's batch, for `append`. Raises KafkaError as `append` does."""

    def check_room(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR if there is too little space for a client's batch of `size` bytes."""

    def keep_room(self, size: int) -> Callable[[], None]:
        """Keep `size` bytes of the disk free for later essential batches, until the returned function is called.

        Raise KAFKA_STORAGE_ERROR if they would need the part of the reserve that is kept for transaction decisions.
        """

    def append(
        self,
        batch: Buffer,
        *,
        inspection: Inspection | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int = 0,
        transaction_version: int = 0,
        essential: bool = False,
    ) -> AppendResult:
        """Check a batch, assign its offsets and accept it, or raise KafkaError.

        The offsets are final when `flushed` reports that they are durable.

        `inspection`: the finished inspection of a client's batch; without it the batch is inspected here.
        `transaction_version`: 2 if the producer's transactions have version 2, whose rules for the first sequence and
        for the epochs of markers are stricter (KIP-890, KIP-1228); 0 if the version is not known.
        `essential`: whether a coordinator's batch may have any size and may use the last part of the disk reserve.

        Raises NOT_LEADER_OR_FOLLOWER if `leader_epoch` is older than that of the owner, and the error code of an
        invalid batch, a refused producer, or failed storage.
        """

    def flushed(self, end_offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below `end_offset` is as durable as `durability` demands, else a future to await.

        All waiters of the same flush share the future, so each must shield it. If the flush fails, the future fails
        with KafkaError KAFKA_STORAGE_ERROR. In that case, the appended batch may or may not survive.
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
        """Return whole batches from `offset` on that readers of this isolation level may see, up to `max_bytes`.

        With `min_one`, a first batch that is larger than `max_bytes` is returned alone. Data that is not immediately
        available is read in steps. Raises KafkaError OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR, from this call or from
        the steps.
        """

    def readable_bytes(
        self, offset: int, wanted: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> int:
        """Return about how many bytes `read` could return from `offset` on, at most `wanted`.

        Never waits: if counting would need a slow read, return `wanted`, so that no fetch waits for records that are
        available. Raises KAFKA_STORAGE_ERROR.
        """

    def find_offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> Steps[tuple[int, int, int]]:
        """Find the first visible record not older than `timestamp` (ms); return its (timestamp, offset, leader epoch).

        All three are -1 if no record matches. Special timestamps: -1 latest, -2 earliest, -3 the record with the
        largest timestamp, -4 earliest local, -5 latest tiered. Raises KafkaError KAFKA_STORAGE_ERROR,
        LEADER_NOT_AVAILABLE, INVALID_REQUEST.
        """

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch not above `epoch`, and its end offset (KIP-101).

        If all known epochs are newer, return `epoch` and the start offset of the oldest known epoch. Return (-1, -1) if
        `epoch` is negative or newer than all known ones, or if none is known. Raises KAFKA_STORAGE_ERROR if the log is
        so damaged that the result is unknown.
        """

    def batches(self, offset: int | None = None, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, whole batch) of each batch, from the one that holds `offset` up to offset `end` (exclusive).

        By default `offset` is the log start offset and `end` the log end offset. Batches above the high watermark are
        included, because coordinators replay the whole log. Raises KAFKA_STORAGE_ERROR.
        """

    def windows(self) -> Iterator[bytes]:
        """Yield all batches from the log start on, tens of kilobytes at a time, with verified checksums.

        Batches above the high watermark are included. Raises KAFKA_STORAGE_ERROR.
        """

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark); return the resulting log start offset.

        The log start offset never goes back, so the result may be larger than `offset`. The change is on disk when
        `Logs.start_offsets_on_disk` returns. Raises KafkaError OFFSET_OUT_OF_RANGE if `offset` is beyond the high
        watermark, and KAFKA_STORAGE_ERROR.
        """

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        """Call `listener(log)` after each move of the high watermark or last stable offset, and when the log fails.

        The listener must not append.
        """

    def remove_listener(self, listener: Callable[[Any], None]) -> None: ...


class Logs(Protocol):
    """All logs of a broker.

    `offline`: the error of each partition that was damaged or lost when it was loaded; nothing is written to it.
    `read_only`: the logs of those offline partitions that can be read up to their damage; the others cannot be read.
    `lost`: the end offset of each partition whose files have disappeared. The caller, which knows the topics, decides
    whether the partition is still needed: it calls `miss` or `forget`.
    """

    @property
    def offline(self) -> Mapping[TopicPartition, KafkaError]: ...

    @property
    def read_only(self) -> Mapping[TopicPartition, Log]: ...

    @property
    def lost(self) -> Mapping[TopicPartition, int]: ...

    @property
    def failed(self) -> KafkaError | None:
        """The error that stops appends and acknowledgements in all logs, or None if the storage works."""

    @property
    def cluster_id(self) -> str:
        """The cluster id, 22 characters as in Kafka."""

    @property
    def path(self) -> str:
        """The place where the logs are stored, as log and error messages name it."""

    @property
    def crowding(self) -> Crowding:
        """The signal that too many files are open. A request that appends to many logs waits until this is over.

        A request that appends to one log need not check the signal.
        """

    def space(self) -> tuple[int, int]:
        """Return the (total, usable) bytes of the storage. Raises OSError."""

    def get(self, topic: str, partition: int) -> Log | None:
        """Return the log of a partition, or None if it does not exist. Raises KAFKA_STORAGE_ERROR if it is offline."""

    def create(self, topic: str, partition: int, config: LogConfig) -> Log | Steps[Log]:
        """Create and return the log of a new partition, in steps if that has to wait. Raises KAFKA_STORAGE_ERROR."""

    def holds(self, topic: str, partition: int) -> bool:
        """Whether anything of the partition is stored, even if it is offline or not fully deleted."""

    def delete(self, partitions: Iterable[TopicPartition]) -> Coroutine[Any, Any, None]:
        """Delete partitions, including offline ones. When this returns, their records will never be readable again.

        Raises KAFKA_STORAGE_ERROR if the deletion fails; the caller then repeats the call with the same partitions.
        """

    async def start_offsets_on_disk(self) -> None:
        """Wait until all changes made so far to log start offsets are on disk. Raises KAFKA_STORAGE_ERROR."""

    def logs(self) -> Iterator[Log]:
        """Yield every log that is not offline."""

    def miss(self, key: TopicPartition) -> None:
        """Take offline a partition that has lost its files but still belongs to a topic.

        If it stayed online, it would begin again at offset 0.
        """

    def forget(self, key: TopicPartition) -> None:
        """Drop a lost partition from `lost` because its topic no longer exists."""

    def note_stray(self, key: TopicPartition) -> None:
        """Record that the partition belongs to no topic, so that its directory may be moved away after a clean stop."""

    def holdings(self, besides: TopicPartition) -> str | None:
        """Return the name of a partition other than `besides` that is or was stored, or None if there is none."""
