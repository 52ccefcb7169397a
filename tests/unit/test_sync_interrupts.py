"""An interrupt of a blocking call, wherever it hits: the coroutine is cancelled, and the next call works."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from oncelog.sync.background import BackgroundLoop

LONGEST_CALL = 2_000
"""More bytecode instructions than the waiting thread runs in one call."""
INTERRUPTED = {"oncelog.sync.background", "threading", "concurrent.futures._base"}
"""The modules whose functions are interrupted. Python itself ignores an interrupt of a finalizer."""


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    background = BackgroundLoop()
    yield background
    background.shut_down()


class Work:
    """A coroutine that counts how often it began and ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    async def run(self, duration_s: float) -> str:
        self.begun += 1
        try:
            await asyncio.sleep(duration_s)
            return "ended"
        finally:
            self.ended += 1


def interrupted_at(instruction: int) -> Callable[[FrameType, str, Any], Any]:
    """Return a trace function that raises KeyboardInterrupt before the given instruction of `BackgroundLoop.run`, or
    of a function that it calls, as Python raises the error of a signal between two instructions.
    """
    left = instruction

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_globals["__name__"] not in INTERRUPTED:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    return trace


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # if the first instruction is interrupted
@pytest.mark.parametrize("duration_s", [0, 0.005], ids=["short work", "longer work"])
def test_an_interrupt_at_any_instruction_ends_the_work(background: BackgroundLoop, duration_s: float) -> None:
    work = Work()
    for instruction in range(1, LONGEST_CALL):
        coroutine = work.run(duration_s)
        sys.settrace(interrupted_at(instruction))
        try:
            result = background.run(coroutine)
        except KeyboardInterrupt:
            assert work.begun == work.ended
            assert background.run(work.run(0)) == "ended"
        else:
            assert result == "ended"
            assert instruction > 50, "the call was interrupted often"
            return
        finally:
            sys.settrace(None)
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")
