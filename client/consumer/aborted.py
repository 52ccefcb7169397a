"""`AbortedTransactions`: decides which batches of a fetch a read_committed consumer must not see (KIP-98).

The broker sends [(producer_id, first_offset)] of the aborted transactions that touch the fetched range. A batch belongs
to an aborted transaction if its producer has an entry that begins at or before the batch's last offset, unless an abort
marker of the producer has already ended that transaction. Batches of open transactions are never sent, because the
response ends below the last stable offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.control_records import ControlType, read_control_record
from ...protocol.records import BatchHeader, Record, decode_batch
from ...protocol.schema import Buffer


class AbortedTransactions:
    """The aborted transactions of one response. Call `hides` for each batch, in order. `aborted` is None for a
    read_uncommitted consumer, which sees all records.
    """

    __slots__ = ("_aborted", "_aborting")

    def __init__(self, aborted: Sequence[tuple[int, int]] | None) -> None:
        self._aborted = None if aborted is None else sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()

    def hides(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Track which aborted transactions begin or end in the batch at `position`; return whether to hide its records.

        Raises CorruptBatch for a marker that cannot be read.
        """
        aborted = self._aborted
        if aborted is not None and header.is_transactional:
            while aborted and aborted[-1][1] <= header.last_offset:
                self._aborting.add(aborted.pop()[0])
            if header.is_control:
                if header.producer_id in self._aborting and _is_abort(data, position, header):
                    self._aborting.discard(header.producer_id)
                return True
            return header.producer_id in self._aborting
        return header.is_control


def _is_abort(data: Buffer, position: int, header: BatchHeader) -> bool:
    records: list[Record] = decode_batch(data, position, header)
    return bool(records) and read_control_record(records[0]).type is ControlType.ABORT
