"""The last record of each offset's key: which tombstones remove it, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.coordinator.last_records import LastOffsets
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.records import Record, encode_batch
from support.counted_lines import lines_of

Change = tuple[int | None, str | None, bool]
"""A producer (None: no transaction), a key (None: the producer's marker), and whether the key gets a value.

For a marker the latter is whether it commits.
"""


def key_of(name: str) -> bytes:
    return b"\0\1" + name.encode()


def batches(changes: Iterable[Change]) -> bytes:
    data = b""
    for offset, (producer, name, positive) in enumerate(changes):
        if name is None:
            data += control_batch(positive, 0, producer or 0, 0, 0, offset)
        else:
            data += encode_batch(
                [Record(offset, 0, key_of(name), b"v" if positive else None)],
                base_offset=offset,
                producer_id=-1 if producer is None else producer,
                producer_epoch=-1 if producer is None else 0,
                transactional=producer is not None,
            )
    return data


def expected(changes: Iterable[Change]) -> set[tuple[int | None, int]]:
    """The producer and the offset of each record that counts: a tombstone visits every transaction."""
    last: dict[str, int] = {}
    pending: dict[int, dict[str, int]] = {}
    for offset, (producer, name, positive) in enumerate(changes):
        if name is None:
            for key, at in pending.pop(producer or 0, {}).items():
                if positive:
                    last[key] = max(at, last.get(key, -1))
        elif positive:
            (last if producer is None else pending.setdefault(producer, {}))[name] = offset
        else:
            for records in (last, *pending.values()):
                records.pop(name, None)
    counts: set[tuple[int | None, int]] = {(None, at) for at in last.values()}
    counts.update((producer, at) for producer, records in pending.items() for at in records.values())
    return counts


CHANGES = st.lists(
    st.tuples(st.none() | st.integers(0, 2), st.sampled_from(["a", "b", "c", None]), st.booleans()).filter(
        lambda change: change[:2] != (None, None)
    ),
    max_size=30,
)


@given(CHANGES)
def test_the_remaining_records_are_those_of_a_log_that_is_replayed_whole(changes: list[Change]) -> None:
    offsets = LastOffsets()
    offsets.take(batches(changes))
    assert {(producer, record.offset) for producer, record in offsets.records()} == expected(changes)


def test_a_tombstone_does_not_visit_all_open_transactions() -> None:
    offsets = LastOffsets()
    offsets.take(batches([(producer, f"k{producer}", True) for producer in range(1000)]))
    data = batches([(None, f"t{number}", False) for number in range(100)])
    lines, _ = lines_of(lambda: offsets.take(data))
    assert lines < 100 * 200
    assert len(list(offsets.records())) == 1000


def test_tombstones_are_forgotten_when_no_transaction_is_open() -> None:
    offsets = LastOffsets()
    offsets.take(batches([(1, "a", True), (None, "a", False), (1, None, True)]))
    assert list(offsets.records()) == []
    assert offsets._removed == {}
