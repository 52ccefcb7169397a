"""Decide which segments and batches belong to a log, and which offsets may follow each other in it.

A start (`log_loader.py`) and a repair (`damage.py`) share these rules. So a repair removes nothing that a start would
serve, and finds all damage that makes a start refuse a partition. Nothing here reads or changes a file.

* Segments that lie entirely below the log start offset are deleted, and only their files remain. A loss of power may
  have restored some of these files, with bytes that were never synced. So neither their content nor a gap between them
  is damage.
* A segment begins where the one before it ends. Only Kafka's compaction leaves gaps between them
  (`kafka_segments.py`).
* The batches of a segment end at the base offset of the next one. Bytes after them were left by a failed write, and a
  loss of power undid their removal. A batch whose offsets belong to the next segment, or that extends into it after a
  gap, is damage or such a leftover.
* A batch begins where the one before it ends, unless compaction has removed what was between them. A checksum does not
  cover the offset in a batch's header, so any other gap or step back is damage.
"""

from __future__ import annotations

from .kafka_segments import KafkaSegments


class OffsetRules:
    """The rules for one log. `following` is always the base offset of the next segment; None for the last segment.

    `start_offset`: the log start offset. `cleaned_to`: the offset up to which the log is compacted according to the
    checkpoint; None if it is not known. A crash may have interrupted a later compaction before the checkpoint was
    written. So finished segments, the only ones that are compacted, may have gaps from this offset on, too. Without
    `trust_gaps`, such gaps count as damage.
    """

    def __init__(
        self, start_offset: int, cleaned_to: int | None, of_kafka: KafkaSegments, *, trust_gaps: bool = True
    ) -> None:
        self._start_offset = start_offset
        self._cleaned_to = cleaned_to
        self._of_kafka = of_kafka
        self._trust_gaps = trust_gaps

    def is_deleted(self, following: int | None) -> bool:
        """Whether a segment lies entirely below the log start offset."""
        return following is not None and following <= self._start_offset

    def joins(self, before: int, base_offset: int, end_offset: int) -> bool:
        """Whether the segment at `base_offset` joins the one before it without a missing or duplicated record.

        The segment before it has the base offset `before` and ends at `end_offset`.
        """
        if base_offset == end_offset or base_offset <= self._start_offset:
            return True
        return base_offset > end_offset and self._of_kafka.may_end_before(before, base_offset)

    def follows(self, end_offset: int, base_offset: int, following: int | None) -> bool:
        """Whether the batch at `base_offset` may come after a batch that ends at `end_offset` in the same segment."""
        if base_offset <= end_offset:
            return base_offset == end_offset
        return (self._trust_gaps and following is not None) or self.may_have_gaps(end_offset)

    def may_have_gaps(self, offset: int) -> bool:
        """Whether compaction may have left gaps at `offset`: it has passed the offset, or its progress is not known."""
        return self._cleaned_to is None or offset < self._cleaned_to

    def fits(self, end_offset: int, base_offset: int, next_offset: int, following: int | None) -> bool:
        """Whether a batch with the offsets `base_offset` to `next_offset` - 1 belongs to the segment that contains it.

        `end_offset`: the end of the previous batch. A batch that begins there, before the next segment's base offset,
        has the right offset. So it belongs to its segment even if it extends past that base offset. In that case, the
        two segments have records with the same offsets, and do not join (`joins`).
        """
        if following is None or next_offset <= following:
            return True
        return base_offset == end_offset < following

    def is_leftover(self, end_offset: int, following: int | None) -> bool:
        """Whether the bytes after a segment's last valid batch are a leftover, in which there is no live record.

        `end_offset` is the end of that batch. The bytes are a leftover if the next segment begins at this offset, or if
        the whole segment is deleted.
        """
        return end_offset == following or self.is_deleted(following)
