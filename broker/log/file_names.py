"""Define the names of the files in a data directory.

Files that Kafka also writes have Kafka's names, so that Kafka's tools can read them.

    <topic>-<partition>/                       one partition
        <base offset, 20 digits>.log           record batches
                               .index          offset -> position
                               .timeindex      timestamp -> offset
                               .txnindex       aborted transactions, only if there are any
                               .checksums      of the three indexes (our own)
        <offset, 20 digits>.snapshot           producer state after all batches below that offset
        leader-epoch-checkpoint
        flushed-offset                     offset up to which the partition is on disk (12 bytes, our own)
        kafka-end                          offset up to which Kafka's compaction may have left gaps (12 bytes, our own)
    <number, 20 digits>.journal            flushed bytes that may not be in the partitions' files yet (our own)
    .kafka_cleanshutdown, *-checkpoint, meta.properties, .lock, .boot-id
    removed/                               bytes that recovery and repair cut off

Suffixes of files that are being changed: `.cleaned` (compaction is writing the file; discarded after a crash), `.swap`
(the file is complete and replaces the segments that it covers), `.deleted` and `-delete` (being deleted), `.tmp` (being
written).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
CHECKSUMS: Final = ".checksums"
INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, CHECKSUMS)

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
TEMPORARY: Final = ".tmp"
DELETED_DIRECTORY: Final = "-delete"

FLUSHED_OFFSET: Final = "flushed-offset"
KAFKA_END: Final = "kafka-end"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
META: Final = "meta.properties"
LOCK: Final = ".lock"
BOOT_ID: Final = ".boot-id"
REMOVED: Final = "removed"
JOURNAL: Final = ".journal"

_MAX_NAME: Final = 200
"""The length to which the name of a partition's directory is shortened while the directory is being deleted."""

_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_JOURNAL = re.compile(r"([0-9]{20})\.journal\Z")
_SEGMENT = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|checksums|snapshot)\Z")


def segment_name(offset: int, suffix: str) -> str:
    """Return the name of a file that belongs to a segment or snapshot, for example `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return (offset, suffix) of a segment's or snapshot's file name; None for all others, including temporary ones."""
    match = _SEGMENT.match(name)
    return (int(match[1]), "." + match[2]) if match else None


def parse_journal_name(name: str) -> int | None:
    """Return the number in the name of a journal file, or None for any other name."""
    match = _JOURNAL.match(name)
    return int(match[1]) if match else None


def partition_directory(topic: str, partition: int) -> str:
    """Return the name of a partition's directory, for example `topic-0`."""
    return f"{topic}-{partition}"


def deleted_directory(topic: str, partition: int, unique: str) -> str:
    """Return the name that a partition's directory has while it is being deleted.

    `unique` makes the name differ from earlier ones.
    """
    return f"{_shortened(partition_directory(topic, partition))}.{unique}{DELETED_DIRECTORY}"


def _shortened(name: str) -> str:
    """Return the name of a partition's directory, shortened to at most 200 characters.

    A file name may have at most 255 characters. The end of a longer name is replaced by `~`, which no topic name
    contains, and a hash of the whole name.
    """
    if len(name) <= _MAX_NAME:
        return name
    digest = "~" + sha256(name.encode()).hexdigest()[:16]
    return name[: _MAX_NAME - len(digest)] + digest


def being_deleted(partitions: Iterable[tuple[str, int]], names: Iterable[str]) -> set[tuple[str, int]]:
    """Return the partitions whose directory is being deleted, as the names in the data directory show.

    Earlier versions cut off a long name after 200 characters. So a name in `names` that cannot be a partition's whole
    name is compared with the first 200 characters of the partitions' names.
    """
    deleted = {name.rpartition(".")[0] for name in names if name.endswith(DELETED_DIRECTORY)}
    cut_off = {name for name in deleted if parse_partition_directory(name) is None}
    partition_names = {key: partition_directory(*key) for key in partitions}
    return {key for key, name in partition_names.items() if _shortened(name) in deleted or name[:_MAX_NAME] in cut_off}


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition's directory name; None for other names and deleted partitions."""
    if name.endswith(DELETED_DIRECTORY):
        return None
    match = _PARTITION.match(name)
    return (match["topic"], int(match["partition"])) if match else None
