"""Recognise the segments that Apache Kafka wrote, and the gaps that its compaction leaves between them.

This module reads and writes a partition's `kafka-end` file. Kafka's cleaner keeps the last batch of each round of
compaction, but not the last batch of each segment. So a compacted segment may end before the next one begins, although
no record is missing. The cleaner of oncelog keeps the last batch of each segment (`cleaner.py`): a gap after one of its
segments means that a segment was lost.

A segment of Kafka has an `.index` file but no `.checksums` file. When oncelog rebuilds the indexes, it creates a
`.checksums` file. Therefore, when a log with such gaps is opened for the first time, its files are synced, and
`kafka-end` records the base offset of the segment after the last gap. Before this offset, gaps stay allowed, even after
oncelog has compacted the segments again.

A segment of oncelog above the recovery point may lack its `.checksums` file, too, after a loss of power. So a gap that
is not recorded is accepted only where all files were on disk: below the recovery point, or after a clean stop.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..system.ports import FileSystem
from .file_names import CHECKSUMS, KAFKA_END, OFFSET_INDEX, SWAP, parse_segment_name
from .small_files import decode_offset, encode_offset, read_derived, write_file


class KafkaSegments:
    """The segments of Apache Kafka in a partition's directory.

    `names`: the files in the directory. `on_disk_to`: the files of segments with base offsets below this offset are
    known to be on disk; None if all files are on disk. Raises OSError.
    """

    def __init__(self, fs: FileSystem, directory: str, names: Iterable[str], on_disk_to: int | None) -> None:
        self._fs = fs
        self._path = f"{directory}/{KAFKA_END}"
        self._on_disk_to = on_disk_to
        names = frozenset(names)
        # As soon as the log is opened, a `.swap` file replaces segments. Its indexes are not used.
        files = {entry for name in names if (entry := parse_segment_name(name.removesuffix(SWAP))) is not None}
        bases = {base for base, kind in files if kind == OFFSET_INDEX}
        self._bases = bases - {base for base, kind in files if kind == CHECKSUMS}
        self._recorded = decode_offset(read_derived(fs, self._path) or b"") if KAFKA_END in names else 0
        self._gaps_end = self._recorded

    def may_begin_at(self, base_offset: int) -> bool:
        """Whether the log may begin with this segment, because Kafka wrote it and has deleted what came before."""
        return base_offset in self._bases and self._is_on_disk(base_offset)

    def may_end_before(self, base_offset: int, following: int) -> bool:
        """Whether the segment at `base_offset` may end before the next one, which begins at offset `following`."""
        allowed = following <= self._recorded or (base_offset in self._bases and self._is_on_disk(following))
        if allowed:
            self._gaps_end = max(self._gaps_end, following)
        return allowed

    @property
    def unrecorded(self) -> bool:
        """Whether gaps were accepted that `kafka-end` does not allow yet."""
        return self._gaps_end > self._recorded

    def record(self) -> None:
        """Write and sync `kafka-end`, before any `.checksums` file is written. Raises OSError."""
        self._write(self._gaps_end)

    def lower(self, offset: int) -> None:
        """Forget the gaps from `offset` on, because the log is cut there and continues with other segments."""
        if offset < self._recorded:
            self._write(offset)

    def _is_on_disk(self, base_offset: int) -> bool:
        return self._on_disk_to is None or base_offset < self._on_disk_to

    def _write(self, offset: int) -> None:
        write_file(self._fs, self._path, encode_offset(offset), sync=True)
        self._recorded = offset
