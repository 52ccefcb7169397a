"""`OffsetStore`: offsets that a marker has decided, but that are not moved yet, look the same as moved ones."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog.broker.coordinator.group import offsets as module
from oncelog.broker.coordinator.group.group_offsets import GroupOffsets, OffsetAndMetadata
from oncelog.broker.coordinator.group.offsets import OffsetStore
from oncelog.broker.scheduling.steps import run_at_once

GROUPS = ["g", "g", "h"]
PARTITIONS = [("t", index) for index in range(2)]
PRODUCERS = [(0, 1), (0, 2)]

CHANGES = st.tuples(
    st.sampled_from(
        ["commit", *["pending"] * 4, "tombstone", "tombstone", "marker", "marker", "marker", "remove", "drop"]
    ),
    st.sampled_from(GROUPS),
    st.sampled_from(PARTITIONS),
    st.sampled_from(PRODUCERS),
    st.booleans(),
)
LOOKUPS = st.tuples(
    st.sampled_from(
        [
            *["get", "has", "of_group", "pending", "snapshot", "is_pending", "producers", "all"],
            *["settle", "settle a little", "may have any", "moved", "known"],
        ]
    ),
    st.sampled_from(GROUPS),
    st.sampled_from(PARTITIONS),
)


def change(store: OffsetStore, number: int, step: tuple[str, str, Any, Any, bool]) -> None:
    what, group, partition, producer, commit = step
    value = OffsetAndMetadata(number, -1, "", 0)
    if what == "commit":
        store.replay(group, partition, value, number)
    elif what == "pending":
        store.replay(group, partition, value, number, producer)
    elif what == "tombstone":
        store.replay(group, partition, None, number)
    elif what == "marker":
        store.complete_transaction(producer, commit, number)
    elif what == "remove":
        store.remove_group(group)
    else:
        store.drop_pending_where(lambda where, _: where == partition)


def look(store: OffsetStore, lookup: tuple[str, str, Any]) -> object:
    what, group, partition = lookup
    match what:
        case "get":
            return store.get(group, partition)
        case "has":
            return store.has(group, partition)
        case "of_group":
            return dict(store.of_group(group))
        case "settle":
            run_at_once(store.settle(group))
            assert group not in store._decided
            return dict(store.moved(group) or {}), set(store.unmoved(group))
        case "settle a little":
            next(store.settle(group), None)
            return None
        case "may have any":
            return store.may_have_any(group) >= bool(store.partitions(group))
        case "moved":
            return set(store.moved(group) or ()) | set(store.unmoved(group)) >= store.partitions(group)
        case "known":
            return set(store.known(group)) >= store.partitions(group)
        case "pending":
            return set(store.pending(group))
        case "snapshot":
            committed, pending = store.snapshot(group)
            return dict(committed), set(pending)
        case "is_pending":
            return store.is_pending(group, partition)
        case "producers":
            return store.pending_producers(group, partition)
        case _:
            return store.partitions(group)


def state(store: OffsetStore) -> object:
    """Everything about the store, which settles all of it."""
    return [
        (dict(store.of_group(group)), {p: store.pending_producers(group, p) for p in store.pending(group)})
        for group in GROUPS
    ] + [store.count(), store._decided, store._pending, store._newest]


@pytest.mark.parametrize("portion", [1, module._SETTLED_AT_ONCE])
@settings(max_examples=1_000, deadline=None)
@given(steps=st.lists(st.tuples(CHANGES, st.none() | LOOKUPS), max_size=40))
def test_offsets_moved_later_are_those_moved_at_once(steps: list[tuple[Any, Any]], portion: int) -> None:
    at_once, later = OffsetStore(), OffsetStore()
    for number, (step, lookup) in enumerate(steps):
        with mock.patch.object(module, "MOVED_AT_ONCE", 1_000):
            change(at_once, number, step)
        with mock.patch.multiple(module, MOVED_AT_ONCE=0):
            change(later, number, step)
        if lookup is not None:
            with mock.patch.object(module, "_SETTLED_AT_ONCE", portion):
                assert look(later, lookup) == look(at_once, lookup)
    assert state(later) == state(at_once)


def test_the_marker_of_a_large_transaction_moves_no_offset() -> None:
    store = OffsetStore()
    count = module.MOVED_AT_ONCE + 1
    for index in range(count):
        store.put("g", ("t", index), OffsetAndMetadata(index, -1, "", 0, record_offset=index), (0, 1))
    with mock.patch.object(GroupOffsets, "put", autospec=True, side_effect=GroupOffsets.put) as put:
        store.complete_transaction((0, 1), True, count)
        assert put.call_count == 0
        assert [store.get("g", ("t", index)) is not None for index in (0, count - 1, count)] == [True, True, False]
        assert put.call_count == 2, "each look-up moves its own partition"
        assert len(store.of_group("g")) == count


def test_transactions_that_leave_a_partition_behind_do_not_pile_up() -> None:
    store = OffsetStore()
    size = module.MOVED_AT_ONCE + 1
    record = 0
    for number in range(100):
        for partition in [*range(size), size + number]:
            record += 1
            store.put("g", ("t", partition), OffsetAndMetadata(number, -1, "", 0, record_offset=record), (0, 1))
        record += 1
        store.complete_transaction((0, 1), True, record)
        assert len(store._decided.get("g", ())) <= 1
