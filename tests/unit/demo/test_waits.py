"""Waits of the demo: bounded, named, shown while they are long, and never in the way of the process's end."""

from __future__ import annotations

import asyncio
import threading

import pytest
from oncelog.demo.observer import JobFailed
from oncelog.demo.waits import Limits, Waits
from support.demo_notes import Notes
from support.group_world import in_virtual_time


@in_virtual_time
async def test_wait_over_its_limit_fails_with_what_it_waited_for() -> None:
    waits = Waits(Notes(), Limits())
    with pytest.raises(JobFailed, match=r"^waited 20 s for the cows to come home$"):
        async with waits.upto(20, "the cows to come home"):
            await asyncio.Event().wait()
    assert waits.state() == []


@in_virtual_time
async def test_long_wait_is_shown_while_it_lasts() -> None:
    notes = Notes()
    async with Waits(notes, Limits(notice_s=30)).upto(100, lambda: "event number 7"):
        await asyncio.sleep(65)
    assert notes.events == [
        "waiting for event number 7: 30 s of at most 100 s",
        "waiting for event number 7: 60 s of at most 100 s",
    ]


@in_virtual_time
async def test_wait_that_gets_on_lasts_longer_than_its_limit() -> None:
    notes = Notes()

    async def walk() -> None:
        async with Waits(notes, Limits(notice_s=8)).upto(10, "the third step") as wait:
            for step in (1, 2, 2):
                wait.stands_at(step)
                await asyncio.sleep(7)

    with pytest.raises(JobFailed, match=r"^waited 10 s for the third step$"):
        await walk()
    assert notes.events == ["waiting for the third step: 8 s of at most 10 s"]


@in_virtual_time
async def test_timeout_of_what_is_awaited_is_not_taken_for_the_limit() -> None:
    with pytest.raises(TimeoutError, match="of its own"):
        async with Waits(Notes(), Limits()).upto(20, "something"):
            raise TimeoutError("of its own")


@in_virtual_time
async def test_state_names_the_waits_that_a_cancel_broke_off() -> None:
    waits = Waits(Notes(), Limits())

    async def read() -> None:
        async with waits.upto(100, "the end of a topic"):
            await asyncio.sleep(2)
            async with waits.upto(10, "the next record"):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 5)
    assert waits.state() == ["was waiting 3 s for the next record", "was waiting 5 s for the end of a topic"]


def test_thread_that_hangs_keeps_neither_the_loop_nor_the_process_from_ending() -> None:
    for_ever = threading.Event()
    before = set(threading.enumerate())

    async def run() -> None:
        with pytest.raises(JobFailed, match=r"waited 0\.01 s for a blocking call"):
            await Waits(Notes(), Limits()).thread(0.01, "a blocking call", for_ever.wait)

    asyncio.run(run())
    hanging = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread.daemon for thread in hanging] == [True]
    for_ever.set()
    hanging[0].join(10)


async def test_thread_gives_back_the_result_or_the_error() -> None:
    waits = Waits(Notes(), Limits())
    assert await waits.thread(10, "a number", int, "12") == 12
    with pytest.raises(ValueError, match="invalid literal"):
        await waits.thread(10, "a number", int, "twelve")
