"""An interrupt of a blocking call, wherever it hits: the coroutine is cancelled, and the next call works."""

from __future__ import annotations

import asyncio
import dis
import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from oncelog import FatalError, IllegalStateError, sync
from oncelog.client.producer.transaction_state import State
from oncelog.sync.background import BackgroundLoop

LONGEST_CALL = 2_000
"""More bytecode instructions than the waiting thread runs in one call."""
INTERRUPTED = {"oncelog.sync.background", "threading", "concurrent.futures._base"}
"""The modules whose functions are interrupted. Python itself ignores an interrupt of a finalizer."""
NEVER_INTERRUPTED = dis.opmap["RETURN_VALUE"]
"""Python looks for signals at calls, in loops and when a function begins, but not when it returns."""


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
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] != NEVER_INTERRUPTED:
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    return trace


def interrupts(call: Callable[[], object], instruction: int) -> bool:
    """Call with an interrupt at the given instruction; return whether KeyboardInterrupt was raised."""
    sys.settrace(interrupted_at(instruction))
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("duration_s", [0, 0.005], ids=["short work", "longer work"])
def test_an_interrupt_at_any_instruction_ends_the_work(background: BackgroundLoop, duration_s: float) -> None:
    work = Work()
    for instruction in range(1, LONGEST_CALL):
        sys.settrace(interrupted_at(instruction))
        try:
            result = background.run(lambda: work.run(duration_s))
        except KeyboardInterrupt:
            assert work.begun == work.ended
            assert background.run(lambda: work.run(0)) == "ended"
        else:
            assert result == "ended"
            assert instruction > 50, "the call was interrupted often"
            return
        finally:
            sys.settrace(None)
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")


MISSED_SIGNAL = """
import asyncio
import signal
import sys
import threading
from oncelog.client.producer.transaction_state import State
from oncelog.sync.background import BackgroundLoop

background = BackgroundLoop()
main = threading.main_thread().ident
begun = threading.Event()

async def work():
    begun.set()
    await asyncio.Event().wait()

def interrupt():
    begun.wait()
    while sys._current_frames()[main].f_code.co_name != "wait":
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    background.run(work)
except KeyboardInterrupt:
    print("interrupted")
background.shut_down()
"""
"""The signal arrives in another thread. It does not end the system call in which the main thread waits."""


def test_a_signal_that_does_not_end_the_wait_interrupts_the_call_nevertheless() -> None:
    done = subprocess.run([sys.executable, "-c", MISSED_SIGNAL], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_the_result_of_an_interrupted_call_is_returned_or_undone(background: BackgroundLoop) -> None:
    work = Work()
    lost: list[str] = []
    for instruction in range(1, LONGEST_CALL):
        sys.settrace(interrupted_at(instruction))
        before = len(lost)
        try:
            background.run(lambda: work.run(0), lost.append)
        except KeyboardInterrupt:
            background.run(lambda: work.run(0))
            assert len(lost) - before <= 1
        else:
            assert len(lost) == before
            assert lost, "an interrupt hit after the work had ended"
            return
        finally:
            sys.settrace(None)
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with sync.Broker() as broker:
        yield broker.address


@pytest.mark.parametrize("how", ["poll", "getmany", "iteration"])
def test_an_interrupted_read_loses_no_record(address: str, how: str) -> None:
    with sync.Producer(bootstrap_servers=address) as producer:
        for number in range(1000):
            producer.send(how, b"%d" % number, partition=0)
    with sync.Consumer(bootstrap_servers=address, auto_offset_reset="earliest", fetch_max_wait_ms=10) as consumer:
        consumer.assign([(how, 0)])
        read: dict[str, Callable[[], list[Any]]] = {
            "poll": lambda: consumer.poll(5000, max_records=2),
            "getmany": lambda: [one for records in consumer.getmany(5000, 2).values() for one in records],
            "iteration": lambda: [next(consumer)],
        }
        values = [record.value for record in read[how]()]
        for instruction in range(1, LONGEST_CALL):
            sys.settrace(interrupted_at(instruction))
            try:
                records = read[how]()
            except KeyboardInterrupt:
                records = []
            finally:
                sys.settrace(None)
            values += [record.value for record in [*records, *read[how]()]]
            if records:
                assert instruction > 50, "the call was interrupted often"
                break
    assert values == [b"%d" % number for number in range(len(values))]


def test_an_interrupt_at_the_begin_of_a_transaction_leaves_no_transaction_open(address: str) -> None:
    with sync.Producer(bootstrap_servers=address, transactional_id="interrupted") as producer:
        producer.init_transactions()
        for instruction in range(1, LONGEST_CALL):
            transaction = producer.transaction()
            if interrupts(transaction.__enter__, instruction):
                assert producer.ready
                continue
            transaction.__exit__(None, None, None)
            assert instruction > 50, "the call was interrupted often"
            return
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")


def test_an_interrupt_at_the_end_of_a_transaction_leaves_no_transaction_open(address: str) -> None:
    with sync.Producer(bootstrap_servers=address, transactional_id="ended") as producer:
        transactions = producer._client._transactions
        assert transactions is not None
        manager = transactions.manager
        for instruction in range(1, LONGEST_CALL):
            transaction = producer.transaction()
            transaction.__enter__()
            transaction.send("ended", b"1")
            if interrupts(functools.partial(transaction.__exit__, None, None, None), instruction):
                assert manager.state in (State.READY, State.COMMIT_UNKNOWN)
                if manager.state is State.COMMIT_UNKNOWN:
                    producer.commit_transaction()
                continue
            assert instruction > 50, "the call was interrupted often"
            return
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")


def test_an_interrupted_start_leaves_no_client_open(address: str) -> None:
    for instruction in range(1, LONGEST_CALL):
        client = sync.Admin(bootstrap_servers=address)
        client._background.check_process()  # the loop exists: no interrupt is to hit while its lock is acquired
        if interrupts(client.start, instruction):
            assert not client._client.is_open
            continue
        with pytest.raises(IllegalStateError):
            client.start()
        assert client._client.is_open, "the second call has closed nothing"
        client.close()
        assert instruction > 50, "the call was interrupted often"
        return
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")


def test_an_interrupt_at_the_end_of_a_clients_block_leaves_no_client_open(address: str) -> None:
    for instruction in range(1, LONGEST_CALL):
        client = sync.Admin(bootstrap_servers=address)
        client.start()
        if interrupts(functools.partial(client.__exit__, None, None, None), instruction):
            assert not client._client.is_open
            continue
        assert instruction > 50, "the call was interrupted often"
        return
    pytest.fail(f"a call needs more than {LONGEST_CALL} instructions")


def test_a_call_that_waits_when_the_loop_ends_fails() -> None:
    background = BackgroundLoop()
    begun = threading.Event()
    failures: list[BaseException] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            background.run(work)
        except BaseException as error:
            failures.append(error)

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    assert begun.wait(10)
    background.shut_down()
    calling.join(10)
    assert [type(failure) for failure in failures] == [FatalError]
