"""The recovery points in memory, in the checkpoint, and in a write of it that has not ended or has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from oncelog.broker.log.log import TopicPartition
from oncelog.broker.log.recovery_points import RecoveryPoints

OLD, NEW = ("t", 0), ("u", 0)


def fail() -> None:
    raise OSError("failed on purpose")


class Storage:
    """Checkpoints whose writes call `before` and `after`."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, int] | None = None
        self.writes = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def read(self, name: str) -> dict[TopicPartition, int] | None:
        return self.stored

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.writes += 1
        self.before()
        self.stored = dict(offsets)
        self.after()


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def points(storage: Storage) -> RecoveryPoints:
    return RecoveryPoints(storage, threading.Lock())


def test_what_is_noted_is_stored_once_it_is_written(points: RecoveryPoints, storage: Storage) -> None:
    points.note({OLD: 1, NEW: 2})
    assert (points.has_changed, points.may_store([OLD])) == (True, False)
    points.write_changes()
    points.write_changes()
    assert (storage.stored, storage.writes) == ({OLD: 1, NEW: 2}, 1)
    assert (points.has_changed, points.may_store([OLD])) == (False, True)
    points.drop([OLD])
    assert (points.has_changed, points.may_store([OLD]), points.may_store([("v", 0)])) == (True, True, False)
    points.write_changes()
    assert (storage.stored, points.may_store([OLD]), points.may_store([NEW])) == ({NEW: 2}, False, True)


def test_what_was_read_is_stored(points: RecoveryPoints, storage: Storage) -> None:
    storage.stored = {OLD: 1}
    points.read()
    assert (points.get(OLD), points.get(NEW), points.has_changed, points.may_store([OLD])) == (1, 0, False, True)


def test_a_dropped_partition_may_be_stored_by_a_write_under_way(points: RecoveryPoints, storage: Storage) -> None:
    points.note({OLD: 1})
    seen: list[bool] = []

    def drop() -> None:
        points.drop([OLD])
        seen.append(points.may_store([OLD]))

    storage.before = drop
    points.write()
    assert seen == [True]
    assert storage.stored == {OLD: 1}
    assert points.may_store([OLD])
    points.write_changes()
    assert not points.may_store([OLD])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failed_write_may_have_stored_its_partitions(points: RecoveryPoints, storage: Storage, moment: str) -> None:
    points.note({OLD: 1})
    points.write()
    points.drop([OLD])
    points.note({NEW: 2})
    setattr(storage, moment, fail)
    with pytest.raises(OSError, match="on purpose"):
        points.write()
    assert points.may_store([OLD])
    assert points.may_store([NEW])
    assert points.has_changed
    setattr(storage, moment, lambda: None)
    points.write_changes()
    assert (storage.stored, points.may_store([OLD])) == ({NEW: 2}, False)


def test_looking_for_a_partition_does_not_go_through_all_of_them(points: RecoveryPoints, storage: Storage) -> None:
    """With 30,000 recovery points, it delayed the removal of each deleted partition by milliseconds."""

    class Long(dict[TopicPartition, int]):
        def __iter__(self) -> Any:
            raise AssertionError("iterated")

    points._stored = Long({OLD: 1})
    assert points.may_store([OLD])
    assert not points.may_store([NEW])
    assert not points.may_store([])
