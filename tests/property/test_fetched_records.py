"""What a reader is handed out of fetched bytes, against a plain model: any mix of transactions, limits and starts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog import TopicPartition
from oncelog.client.consumer.fetched import FetchedPartition
from oncelog.protocol.compression import Compression
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.records import Record, encode_batch

PARTITION = TopicPartition("t", 0)

events = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("send"), st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("commit"), st.just(1), st.integers(1, 3)),
        st.tuples(st.just("abort"), st.just(1), st.integers(1, 3)),
    ),
    max_size=30,
)


class Log:
    """A partition as a broker writes it: batches, and the index of aborted transactions."""

    def __init__(self, steps: list[tuple[str, int, int]], compression: Compression) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.aborted: list[tuple[int, int, int]] = []
        self.visible: list[int] = []
        self.data: list[int] = []
        open_since: dict[int, int] = {}
        pending: dict[int, list[int]] = {}
        offset = 0
        for kind, count, producer in [*steps, *(("abort", 1, one) for one in (1, 2, 3))]:
            first = offset
            if kind in ("plain", "send"):
                offsets = list(range(offset, offset + count))
                self.data += offsets
                transactional = kind == "send"
                batch = encode_batch(
                    [Record(at, at, None, b"%d" % at) for at in offsets],
                    base_offset=offset,
                    compression=compression,
                    producer_id=producer if transactional else -1,
                    producer_epoch=0 if transactional else -1,
                    base_sequence=0 if transactional else -1,
                    transactional=transactional,
                )
                if transactional:
                    open_since.setdefault(producer, offset)
                    pending.setdefault(producer, []).extend(offsets)
                else:
                    self.visible += offsets
            else:
                count = 1
                batch = control_batch(kind == "commit", 0, producer, 0, 0, base_offset=offset)
                written = pending.pop(producer, [])
                if kind == "commit":
                    self.visible += written
                elif producer in open_since:
                    self.aborted.append((producer, open_since[producer], offset))
                open_since.pop(producer, None)
            offset += count
            self.batches.append((first, offset, batch))
        self.end = offset
        self.visible.sort()

    def fetch(self, start: int, batches: int) -> tuple[bytes, list[tuple[int, int]], int]:
        """Whole batches from the one that holds `start`: bytes, aborted transactions that overlap, end."""
        chosen = [one for one in self.batches if one[1] > start][:batches]
        if not chosen:
            return b"", [], start
        end = chosen[-1][1]
        overlapping = [
            (producer, first) for producer, first, last in self.aborted if first < end and last >= chosen[0][0]
        ]
        return b"".join(batch for _, _, batch in chosen), overlapping, end


def read(log: Log, start: int, chunk: int, most: int, committed: bool, one_by_one: bool) -> tuple[list[int], int]:
    """All offsets handed out from `start` to the end, over as many fetches as it takes; and the last position."""
    found: list[int] = []
    position = start
    while position < log.end:
        data, aborted, end = log.fetch(position, chunk)
        fetched = FetchedPartition(PARTITION, data, position, aborted if committed else None)
        assert fetched.end_offset == end
        while True:
            if one_by_one:
                record = fetched.take_one()
                records = [] if record is None else [record]
            else:
                records = fetched.take(most)
            assert len(records) <= most
            if not records:
                break
            assert all(record.value == b"%d" % record.offset for record in records)
            assert fetched.next_offset > records[-1].offset
            found += [record.offset for record in records]
        assert fetched.next_offset == end
        assert fetched.waiting_bytes == 0
        position = end
    return found, position


@given(
    events,
    st.sampled_from([Compression.NONE, Compression.LZ4]),
    st.floats(0, 1),
    st.integers(1, 6),
    st.integers(1, 5),
    st.booleans(),
)
@settings(max_examples=300)
def test_read_committed_hands_out_exactly_what_was_committed(
    steps: list[tuple[str, int, int]], compression: Compression, where: float, chunk: int, most: int, one_by_one: bool
) -> None:
    log = Log(steps, compression)
    start = int(where * log.end)
    found, position = read(log, start, chunk, 1 if one_by_one else most, True, one_by_one)
    assert found == [offset for offset in log.visible if offset >= start]
    assert position == log.end


@given(events, st.floats(0, 1), st.integers(1, 6), st.integers(1, 5))
def test_read_uncommitted_hands_out_all_but_markers(
    steps: list[tuple[str, int, int]], where: float, chunk: int, most: int
) -> None:
    log = Log(steps, Compression.NONE)
    start = int(where * log.end)
    assert read(log, start, chunk, most, False, False)[0] == [offset for offset in log.data if offset >= start]
