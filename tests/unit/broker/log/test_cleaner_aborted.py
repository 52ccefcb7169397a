"""Compaction never shows a read_committed consumer a record that was aborted."""

from __future__ import annotations

import pytest
from oncelog.broker.log import AppendOrigin, IsolationLevel, PartitionLog
from oncelog.broker.log.cleaner import Cleaner
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.records import decode_batch, iter_batches
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, at_once, batch, open_log


def committed_values(log: PartitionLog) -> list[str]:
    """What a read_committed consumer shows: all but the records of the transactions that the log names as aborted."""
    shown = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        read = at_once(log.read(offset, 1 << 20, IsolationLevel.READ_COMMITTED))
        assert read.aborted is not None
        to_come = sorted(read.aborted, key=lambda entry: entry[1])
        aborting: set[int] = set()
        for position, header in iter_batches(bytes(read.records)):
            while to_come and to_come[0][1] <= header.last_offset:
                aborting.add(to_come.pop(0)[0])
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                shown += [(record.value or b"").decode() for record in decode_batch(read.records, position, header)]
        offset = read.next_offset
    return shown


@pytest.mark.parametrize("memory", [1, 1_000, 2_000, 4_000, 8_000])
def test_aborted_records_behind_the_keys_that_fit_into_memory_stay_aborted(memory: int) -> None:
    """A segment is replaced as a whole also where its keys are more than fit into memory."""
    fs = FaultyFileSystem()
    log = open_log(fs, cleanup_policy=("compact",), segment_bytes=1 << 20)
    sequence = 0
    for number in range(40):
        log.append(batch(f"plain {number}", key=f"plain {number}".encode()))
        is_committed = number % 3 == 0
        for part in range(2):
            value = f"{'committed' if is_committed else 'aborted'} {number} {part}"
            options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
            log.append(batch(value, key=value.encode(), **options))
            sequence += 1
            if (number, part) in [(13, 0), (27, 1)]:
                log.flush()
                log.roll()
        log.append(bytearray(control_batch(is_committed, 0, 7, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.flush()
    log.roll()
    log.flush()
    before = committed_values(log)
    assert len(before) == 40 + 14 * 2
    cleaner = Cleaner(fs, max_key_bytes=memory)
    clean_up_to = 0
    for round_ in range(5):
        clean_up_to = cleaner.clean(log, clean_up_to, NOW + round_)
        assert committed_values(log) == before
