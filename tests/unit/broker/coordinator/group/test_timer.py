"""Deadlines by key: what is due happens once, in order, and not before."""

from __future__ import annotations

import weakref
from functools import partial

import pytest
from oncelog.broker.coordinator.group.timer import DeadlineTimer
from support.counted_lines import lines_of
from support.transaction_ports import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_what_is_due_is_done_once_and_in_order(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("late", 20, lambda: done.append("late"))
    timer.schedule("early", 10, lambda: done.append("early"))
    timer.run_due()
    assert done == []
    clock.advance(20)
    timer.run_due()
    timer.run_due()
    assert done == ["early", "late"]
    assert timer.next_deadline() is None


def test_a_rescheduled_key_has_only_its_last_deadline(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("a", 10, lambda: done.append(1))
    clock.advance(9)
    timer.schedule("a", 10, lambda: done.append(2))
    clock.advance(9)
    timer.run_due()
    assert done == []
    clock.advance(1)
    timer.run_due()
    assert done == [2]


def test_a_key_may_be_moved_to_an_earlier_time(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("a", 100, lambda: done.append("far"))
    timer.schedule("a", 5, lambda: done.append("near"))
    clock.advance(5)
    timer.run_due()
    clock.advance(100)
    timer.run_due()
    assert done == ["near"]


def test_a_cancelled_key_does_nothing(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("a", 5, lambda: done.append(1))
    timer.cancel("a")
    timer.cancel("never")
    clock.advance(10)
    timer.run_due()
    assert done == []


def test_an_action_may_cancel_another_that_is_due_too(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("a", 5, lambda: timer.cancel("b"))
    timer.schedule("b", 6, lambda: done.append("b"))
    clock.advance(10)
    timer.run_due()
    assert done == []


def test_an_action_that_schedules_itself_runs_at_the_next_call(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []

    def again() -> None:
        done.append(1)
        timer.schedule("a", 0, again)

    timer.schedule("a", 0, again)
    timer.run_due()
    assert len(done) == 1
    timer.run_due()
    assert len(done) == 2


def test_an_action_that_is_to_run_soon_comes_before_all_deadlines(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("deadline", 0, lambda: done.append("deadline"))
    timer.schedule_soon("portion", lambda: done.append("portion"))
    timer.schedule_soon("cancelled", lambda: done.append("cancelled"))
    timer.cancel("cancelled")
    timer.run_due()
    assert done == ["portion", "deadline"]


def test_a_deadline_that_has_passed_meanwhile_is_left_for_later(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("early", 10, lambda: done.append("early"))
    timer.schedule("late", 20, lambda: done.append("late"))
    due_by = clock.monotonic() + 0.01
    clock.advance(30)
    timer.run_due(50, due_by)
    assert done == ["early"]
    timer.run_due()
    assert done == ["early", "late"]


def fail() -> None:
    raise ZeroDivisionError


def test_a_failing_action_stops_no_other(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("a", 1, fail)
    timer.schedule("b", 2, lambda: done.append("b"))
    clock.advance(5)
    with pytest.raises(ExceptionGroup) as caught:
        timer.run_due()
    assert caught.value.subgroup(ZeroDivisionError) is not None
    assert done == ["b"]


def test_the_driver_is_told_of_earlier_deadlines_only(clock: FakeClock) -> None:
    told = []
    timer = DeadlineTimer(clock, lambda: told.append(timer.next_deadline()))
    timer.schedule("a", 50, lambda: None)
    timer.schedule("b", 60, lambda: None)
    timer.schedule("c", 40, lambda: None)
    assert told == [pytest.approx(clock.monotonic() + 0.05), pytest.approx(clock.monotonic() + 0.04)]


class Key:
    """A key whose life can be watched."""


@pytest.mark.parametrize("moved", [False, True])
def test_cancelled_keys_do_not_stay_until_their_deadline(clock: FakeClock, moved: bool) -> None:
    timer, done = DeadlineTimer(clock), []
    timer.schedule("kept", 50, lambda: done.append("kept"))
    alive: weakref.WeakSet[Key] = weakref.WeakSet()
    for _ in range(10_000):
        key = Key()
        alive.add(key)
        timer.schedule(key, 60_000, lambda: done.append("cancelled"))
        if moved:
            timer.schedule(key, 30_000, lambda: done.append("cancelled"))
        timer.cancel(key)
    del key
    assert len(alive) <= 1001
    clock.advance(60)
    timer.run_due()
    assert done == ["kept"]


def test_stale_entries_are_dropped_a_few_at_a_time(clock: FakeClock) -> None:
    """When the members of many groups left, the entries of all of them were looked at together."""
    done: list[int] = []
    timer = DeadlineTimer(clock)
    for number in range(20_000):
        timer.schedule(number, 30 + number % 7, partial(done.append, number))
    kept = range(0, 20_000, 50)
    for number in range(20_000):
        if number not in kept:
            lines, _ = lines_of(partial(timer.cancel, number))
            assert lines < 100
    for number in range(20_000):
        if number not in kept:
            lines, _ = lines_of(partial(timer.schedule, number, 60, lambda: None))
            assert lines < 200
    clock.advance(40)
    timer.run_due()
    assert done == sorted(kept, key=lambda number: number % 7)
    timer.clear()
    assert timer.next_deadline() is None


def test_a_deadline_that_moves_to_and_fro_takes_bounded_memory(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    for _ in range(10_000):
        timer.schedule("a", 60_000, lambda: done.append("far"))
        timer.schedule("a", 1, lambda: done.append("near"))
        timer.schedule("a", 60_000, lambda: done.append("far"))
        clock.advance(2)
        timer.run_due()
    assert len(timer._heap) + len(timer._unswept) <= 1200
    assert done == []


def test_entries_whose_deadlines_were_extended_count_as_work(clock: FakeClock) -> None:
    """Many sessions that began together, and that heartbeats kept alive, become due together."""
    timer, done = DeadlineTimer(clock), []
    for number in range(1000):
        timer.schedule(number, 30, lambda: done.append("session"))
    clock.advance(20)
    for number in range(1000):
        timer.schedule(number, 30, lambda: done.append("session"))
    timer.schedule("other", 10, lambda: done.append("other"))
    clock.advance(10)
    calls = 0
    while (timer.next_deadline() or 0) <= clock.monotonic():
        lines, _ = lines_of(lambda: timer.run_due(50))
        assert lines < 2000
        calls += 1
    assert calls == 21
    assert done == ["other"]
    clock.advance(20)
    timer.run_due()
    assert done[1:] == ["session"] * 1000


def test_entries_that_are_no_longer_valid_count_as_work(clock: FakeClock) -> None:
    timer, done = DeadlineTimer(clock), []
    for number in range(500):
        timer.schedule(number, 30, lambda: done.append("cancelled"))
    for number in range(500):
        timer.cancel(number)
    timer.schedule("other", 30, lambda: done.append("other"))
    clock.advance(30)
    for _ in range(10):
        timer.run_due(50)
        assert done == []
    timer.run_due(50)
    assert done == ["other"]
