"""The blocking clients of `oncelog.sync`. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oncelog
import pytest
from oncelog import AbortableError, IllegalStateError, KafkaError, RebalanceListener, TopicPartition, sync
from oncelog.client.consumer import membership
from oncelog.sync import Admin, Broker, Consumer, Producer, background
from support.broker import BrokerProcess

Names = Callable[[str], str]


@pytest.fixture
def topic(bootstrap: str, fresh_name: Names) -> str:
    name = fresh_name("topic")
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, 1)
    return name


def read_all(bootstrap: str, topic: str) -> list[bytes | None]:
    """What a read_committed consumer finds in partition 0, up to its end, once every transaction there has ended."""
    partition = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=bootstrap) as admin:
        end = admin.list_offsets({partition: -1})[partition].offset
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values: list[bytes | None] = []
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(1000)]
    return values


CLOSES = """
import asyncio, sys, threading
from oncelog.sync.facade import Facade
class Client:
    def __init__(self, close, takes_s=0.3):
        self.close, self.closing, self.takes_s = close, threading.Event(), takes_s
        self.is_open = False
    async def __aenter__(self):
        self.is_open = True
    async def __aexit__(self, *error):
        self.is_open = False
        self.closing.set()
        await asyncio.sleep(self.takes_s)
        self.close()
def close_in_daemon_thread(client):
    facade = Facade(client)
    def work():
        with facade:
            pass
    threading.Thread(target=work, daemon=True).start()
    client.closing.wait()
    return facade
"""
"""Defines a client whose close takes a moment, and then calls a function.

`close_in_daemon_thread` waits until the close has begun.
"""


def script(source: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of its own, with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("how", ["iteration", "poll"])
@pytest.mark.parametrize(
    ("end", "next_value"), [("busy", b"2"), ("committed", b"3"), ("ended", b"3"), ("same thread", b"3")]
)
def test_closing_commits_no_record_that_another_thread_still_processes(
    bootstrap: str, topic: str, fresh_name: Names, how: str, end: str, next_value: bytes
) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(9):
            producer.send(topic, b"%d" % number)
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "group.id": fresh_name("group")}
    third, closed = threading.Event(), threading.Event()

    def process(consumer: Consumer) -> None:
        for _ in range(3):
            record = next(consumer) if how == "iteration" else consumer.poll(10_000, max_records=1)[0]
        assert record.value == b"2"
        if end == "committed":
            consumer.commit()
        third.set()
        if end in ("busy", "committed"):
            assert closed.wait(30)

    with Consumer(settings, topics=[topic]) as first:
        if end == "same thread":
            process(first)
        else:
            processing = threading.Thread(target=process, args=(first,), daemon=True)
            processing.start()
            assert third.wait(30)
            if end == "ended":
                processing.join()
    closed.set()
    with Consumer(settings, topics=[topic]) as second:
        assert next(second).value == next_value


async def test_a_call_in_a_running_event_loop_warns_once(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_warned", False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # a test of a notebook in this process imports it
    with (
        pytest.warns(RuntimeWarning, match=r"running event loop.*asyncio\.to_thread") as warned,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        admin.list_topics()
    assert [warning.filename for warning in warned] == [__file__]


# ---- what the clients do


def test_records_are_written_and_read(bootstrap: str, topic: str, fresh_name: Names) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        delivery = producer.send(topic, b"first", key=b"k", headers=[("h", b"1")])
        assert delivery.result(30).offset == 0
        assert delivery.done()
        for number in range(200):
            producer.send(topic, b"%d" % number)
        producer.flush()
        assert producer.partitions_for(topic) == 1
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(settings, topics=[topic], group_id=fresh_name("group")) as consumer:
        record = next(consumer)
        assert (record.value, record.key, record.headers) == (b"first", b"k", [("h", b"1")])
        values = [record.value for _, record in zip(range(200), consumer, strict=False)]
        assert values == [b"%d" % number for number in range(200)]
        consumer.commit()
        assert consumer.assignment() == {TopicPartition(topic, 0)}
        assert consumer.committed()[TopicPartition(topic, 0)].offset == 201  # type: ignore[union-attr]
    with pytest.raises(StopIteration):
        next(consumer)


def test_transaction_commits_at_the_end_of_its_block_and_aborts_on_an_exception(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer:
        with producer.transaction() as txn:
            txn.send(topic, b"committed")
        with contextlib.suppress(LookupError), producer.transaction() as txn:
            txn.send(topic, b"aborted").result()
            raise LookupError
        with producer.transaction() as txn:
            txn.send(topic, b"withdrawn")
            txn.abort()
        producer.begin_transaction()
        producer.send(topic, b"by hand")
        producer.commit_transaction()
        assert producer.ready
    assert read_all(bootstrap, topic) == [b"committed", b"by hand"]


def test_a_thread_that_cannot_begin_leaves_the_transaction_of_another_thread_alone(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer,
        ThreadPoolExecutor(1) as other,
    ):
        with producer.transaction() as txn:
            txn.send(topic, b"one").result()
            with pytest.raises(IllegalStateError, match="in a transaction"):
                other.submit(producer.transaction().__enter__).result()
        with (  # noqa: PT012
            pytest.raises(AbortableError, match="before the end of its block"),
            producer.transaction() as txn,
        ):
            txn.send(topic, b"aborted").result()
            other.submit(producer.abort_transaction).result()
    assert read_all(bootstrap, topic) == [b"one"]


def test_offsets_are_committed_in_a_transaction(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group, output = fresh_name("group"), fresh_name("output")
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer:
        with producer.transaction() as txn:
            txn.send(topic, b"in")
        with Consumer(settings, topics=[topic], group_id=group) as consumer:
            record = next(consumer)
            producer.init_transactions(consumer.group_assignment())
            with producer.transaction() as txn:
                txn.send(output, b"out", partition=0)
                txn.send_offsets({record.topic_partition: record.offset + 1}, consumer.group_metadata())
    assert read_all(bootstrap, output) == [b"out"]
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 1


def test_errors_are_those_of_the_asyncio_clients(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topic(topic)
        assert topic in admin.list_topics()
    with pytest.raises(IllegalStateError, match="is closed"):
        admin.list_topics()
    with pytest.raises(IllegalStateError, match="is not started"):
        Producer(bootstrap_servers=bootstrap).send(topic, b"")
    with pytest.raises(oncelog.ConfigError):
        Producer(bootstrap_servers="nonsense")


def test_result_of_a_delivery_that_takes_too_long_is_a_timeout(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        delivery = producer.send(topic, b"waits for others")
        assert not delivery.done()
        with pytest.raises(TimeoutError, match="not acknowledged within"):
            delivery.result(0.01)
        producer.flush()
        assert delivery.result().offset == 0


def test_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer, ThreadPoolExecutor(8) as threads:
        deliveries = list(threads.map(lambda number: producer.send(topic, b"%d" % number), range(400)))
        assert sorted(delivery.result().offset for delivery in deliveries) == list(range(400))
    assert sum(thread.name == "oncelog-sync" for thread in threading.enumerate()) == 1


def test_a_listener_may_use_the_consumer(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group = fresh_name("group")
    calls: list[str] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 2)
            calls.append("assigned")

        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            consumer.commit(dict.fromkeys(partitions, 3))
            calls.append("revoked")

    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b"0", b"1", b"2"):
            producer.send(topic, value).result()
    settings = {"bootstrap.servers": bootstrap, "enable.auto.commit": False}
    with Consumer(settings, topics=[topic], listener=Listener(), group_id=group) as consumer:
        assert next(consumer).value == b"2"
    assert calls == ["assigned", "revoked"]
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 3


@pytest.mark.parametrize("name", ["close", "unsubscribe", "poll"])
def test_a_call_that_would_wait_for_its_own_listener_is_refused(
    bootstrap: str, topic: str, fresh_name: Names, name: str
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "close": lambda: consumer.close(),
        "unsubscribe": lambda: consumer.unsubscribe(),
        "poll": lambda: consumer.poll(1000),
    }
    may, refused = threading.Event(), threading.Event()

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            assert may.wait(20)  # until the poll that began the rebalance has returned
            with contextlib.suppress(IllegalStateError):
                calls[name]()
                return
            refused.set()

    with Consumer(
        bootstrap_servers=bootstrap, topics=[topic], listener=Listener(), group_id=fresh_name("group")
    ) as consumer:
        while not any(thread.name == "oncelog-listener" for thread in threading.enumerate()):
            consumer.poll(10)
        may.set()
        assert refused.wait(10)


def test_listeners_of_many_consumers_may_wait_for_each_other(bootstrap: str, topic: str, fresh_name: Names) -> None:
    consumers = 2 * min(32, (os.cpu_count() or 1) + 4)
    together = threading.Barrier(consumers, timeout=20)
    passed: list[threading.Thread] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            together.wait()
            passed.append(threading.current_thread())

    def read() -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": fresh_name("group")}
        with Consumer(settings, topics=[topic], listener=Listener()) as consumer:
            while not consumer.assignment():
                consumer.poll(50)

    with ThreadPoolExecutor(consumers) as threads:
        for reading in [threads.submit(read) for _ in range(consumers)]:
            reading.result()
    assert len(passed) == consumers


EXITS = {
    "value_serializer": """
with Producer(bootstrap_servers=bootstrap, value_serializer=leave) as producer:
    producer.send(topic, "value")
""",
    "value_deserializer": """
with Producer(bootstrap_servers=bootstrap) as producer:
    producer.send(topic, b"value")
with Consumer(bootstrap_servers=bootstrap, value_deserializer=leave) as consumer:
    consumer.assign([(topic, 0)])
    consumer.seek_to_beginning()
    next(consumer)
""",
    "on_partitions_assigned": """
class Listener(RebalanceListener):
    def on_partitions_assigned(self, partitions):
        leave()
with Consumer(bootstrap_servers=bootstrap, group_id=group, topics=[topic], listener=Listener()) as consumer:
    next(consumer)
""",
    "async on_partitions_assigned": """
class Listener(RebalanceListener):
    async def on_partitions_assigned(self, partitions):
        leave()
with Consumer(bootstrap_servers=bootstrap, group_id=group, topics=[topic], listener=Listener()) as consumer:
    next(consumer)
""",
    "on_delivery": """
with Producer(bootstrap_servers=bootstrap) as producer:
    producer.send(topic, b"value", on_delivery=leave)
    producer.flush()
sys.exit("after the callback")
""",
}
"""Programs in which a function that a client calls exits."""


@pytest.mark.parametrize("function", EXITS)
def test_a_function_that_exits_leaves_no_call_waiting(
    bootstrap: str, topic: str, fresh_name: Names, function: str
) -> None:
    preparation = """
import sys
from oncelog import RebalanceListener
from oncelog.sync import Consumer, Producer
bootstrap, topic, group = sys.argv[1:]
def leave(*arguments):
    sys.exit("from a function")
"""
    program = script(preparation + EXITS[function], bootstrap, topic, fresh_name("group"))
    try:
        _, err = program.communicate(timeout=30)
    finally:
        program.kill()
    assert program.returncode == 1
    if function == "on_delivery":  # no call of the program waits for it
        assert err.startswith("SystemExit in the event loop of oncelog.sync does not end the program\n")
        assert err.endswith("\nSystemExit: from a function\nafter the callback\n")
    else:
        assert err == "from a function\n"


def test_exit_does_not_wait_for_a_listener_that_never_returns(bootstrap: str, topic: str, fresh_name: Names) -> None:
    program = script(
        """
import sys, threading
from oncelog import RebalanceListener
from oncelog.sync import Consumer
entered = threading.Event()
class Listener(RebalanceListener):
    def on_partitions_assigned(self, partitions):
        entered.set()
        threading.Event().wait()
consumer = Consumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[3], topics=[sys.argv[2]], listener=Listener())
consumer.start()
while not entered.is_set():
    consumer.poll(50)
""",
        bootstrap,
        topic,
        fresh_name("group"),
    )
    try:
        program.communicate(timeout=30)
    finally:
        program.kill()
    assert program.returncode == 0


def test_a_call_in_the_event_loop_of_the_clients_is_refused(bootstrap: str, topic: str, fresh_name: Names) -> None:
    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            consumer.assignment()

    with (
        Consumer(
            bootstrap_servers=bootstrap, topics=[topic], listener=Listener(), group_id=fresh_name("group")
        ) as consumer,
        pytest.raises(IllegalStateError, match="in its own event loop"),
    ):
        next(consumer)


@pytest.mark.oncelog_only(reason="starts a broker of its own")
def test_a_broker_runs_in_the_background() -> None:
    with Broker(num_partitions=3) as broker, Admin(bootstrap_servers=broker.address) as admin:
        assert broker.address == f"{broker.host}:{broker.port}"
        assert broker.failure is None
        admin.create_topic("t")
        assert len(admin.describe_topics(["t"])["t"].partitions) == 3


# ---- the process around them


def test_interrupt_ends_a_call_and_leaves_the_client_usable(bootstrap: str, topic: str, fresh_name: Names) -> None:
    program = script(
        """if True:
        import sys
        from oncelog.sync import Consumer
        bootstrap, topic, group = sys.argv[1:]
        with Consumer(bootstrap_servers=bootstrap, topics=[topic], group_id=group) as consumer:
            while not consumer.assignment():
                consumer.poll(1000)
            try:
                print("waits", flush=True)
                next(consumer)
            except KeyboardInterrupt:
                print("interrupted", len(consumer.assignment()), flush=True)
        """,
        bootstrap,
        topic,
        group := fresh_name("group"),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "waits\n"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=30)
    assert (out, err, program.returncode) == ("interrupted 1\n", "", 0)
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_groups([group])[group].members == ()


def test_interrupt_in_a_transaction_aborts_it(bootstrap: str, topic: str, fresh_name: Names) -> None:
    program = script(
        """if True:
        import sys, time
        from oncelog.sync import Producer
        bootstrap, topic, name = sys.argv[1:]
        with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
            with producer.transaction() as txn:
                txn.send(topic, b"aborted").result()
                print("open", flush=True)
                time.sleep(60)
        """,
        bootstrap,
        topic,
        name := fresh_name("id"),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "open\n"
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=30)
    assert err.rstrip().endswith("KeyboardInterrupt")
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_transactions([name])[name].state == "CompleteAbort"


def interrupted_without_a_broker(kind: str, broker: BrokerProcess) -> float:
    """Stop the broker's process in a block, and raise KeyboardInterrupt there. The result is when it was raised.

    The settings that bound waiting otherwise are long.
    """
    settings: Any = {"bootstrap_servers": broker.address, "cancel_grace_ms": 200, "request_timeout_ms": 20_000}
    raised = 0.0
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as block:
        if kind == "consumer":
            consumer = block.enter_context(Consumer(**settings, topics=["t"], group_id="g"))
            while not consumer.assignment():
                consumer.poll(100)
            os.kill(broker.pid, signal.SIGSTOP)
        else:
            settings |= {"max_block_ms": 20_000, "delivery_timeout_ms": 21_000}
            settings |= {"transactional_id": "id"} if kind == "transaction" else {}
            sender: Any = block.enter_context(Producer(**settings))
            if kind == "transaction":
                sender = block.enter_context(sender.transaction())
            sender.send("t", b"").result()
            os.kill(broker.pid, signal.SIGSTOP)
            sender.send("t", b"never sent")
        raised = time.monotonic()
        raise KeyboardInterrupt
    return raised


@pytest.mark.oncelog_only(reason="stops the process of a broker of its own")
@pytest.mark.parametrize("kind", ["producer", "transaction", "consumer"])
def test_an_interrupt_ends_a_block_although_the_broker_does_not_respond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(membership, "JOIN_GRACE_S", 20.0)
    with BrokerProcess(tmp_path) as broker:
        try:
            raised = interrupted_without_a_broker(kind, broker)
            assert time.monotonic() - raised < 10
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_exit_delivers_what_was_sent_and_leaves_the_group(bootstrap: str, topic: str, fresh_name: Names) -> None:
    program = script(
        """if True:
        import sys
        from oncelog.sync import Consumer, Producer
        bootstrap, topic, group = sys.argv[1:]
        consumer = Consumer(bootstrap_servers=bootstrap, topics=[topic], group_id=group)
        consumer.start()
        while not consumer.assignment():
            consumer.poll(1000)
        producer = Producer(bootstrap_servers=bootstrap, linger_ms=60000)
        producer.start()
        for number in range(10):
            producer.send(topic, b"%d" % number)
        """,
        bootstrap,
        topic,
        group := fresh_name("group"),
    )
    out, err = program.communicate(timeout=30)
    assert (out, program.returncode) == ("", 0)
    assert err == "2 client(s) of oncelog.sync were not closed before exit: use `with`\n"
    assert read_all(bootstrap, topic) == [b"%d" % number for number in range(10)]
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_groups([group])[group].members == ()


def test_exit_commits_nothing_that_may_not_have_been_processed(bootstrap: str, topic: str, fresh_name: Names) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"poison").result()
    program = script(
        """if True:
        import sys
        from oncelog.sync import Consumer
        bootstrap, topic, group = sys.argv[1:]
        settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings, topics=[topic], group_id=group)
        consumer.start()
        raise ValueError(next(consumer).value)
        """,
        bootstrap,
        topic,
        group := fresh_name("group"),
    )
    _, err = program.communicate(timeout=30)
    assert "ValueError: b'poison'" in err
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_groups([group])[group].members == ()
        assert admin.group_offsets(group) == {}


def test_exit_closes_every_client_although_a_listener_exits(bootstrap: str, topic: str, fresh_name: Names) -> None:
    program = script(
        """if True:
        import sys
        from oncelog import RebalanceListener
        from oncelog.sync import Consumer, Producer
        bootstrap, topic, group = sys.argv[1:]
        class Listener(RebalanceListener):
            def on_partitions_revoked(self, partitions):
                sys.exit("from a listener")
        producer = Producer(bootstrap_servers=bootstrap, linger_ms=60000)
        producer.start()
        consumer = Consumer(bootstrap_servers=bootstrap, topics=[topic], group_id=group, listener=Listener())
        consumer.start()
        while not consumer.assignment():
            consumer.poll(1000)
        for number in range(10):
            producer.send(topic, b"%d" % number)
        """,
        bootstrap,
        topic,
        fresh_name("group"),
    )
    _, err = program.communicate(timeout=30)
    assert "a client of oncelog.sync could not be closed: from a listener" in err
    assert read_all(bootstrap, topic) == [b"%d" % number for number in range(10)]


def test_exit_closes_a_client_whose_close_had_a_wrong_argument(bootstrap: str, topic: str) -> None:
    program = script(
        """if True:
        import sys
        from oncelog.sync import Producer
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60000)
        producer.start()
        producer.send(sys.argv[2], b"sent")
        producer.close(timeout_s=-1)
        """,
        bootstrap,
        topic,
    )
    _, err = program.communicate(timeout=30)
    assert "ValueError: timeout_s must be" in err
    assert read_all(bootstrap, topic) == [b"sent"]


def test_exit_closes_a_consumer_whose_listener_may_not_close_it(bootstrap: str, topic: str, fresh_name: Names) -> None:
    program = script(
        """if True:
        import sys
        from oncelog import IllegalStateError, RebalanceListener
        from oncelog.sync import Consumer
        bootstrap, topic, group = sys.argv[1:]
        class Listener(RebalanceListener):
            def on_partitions_assigned(self, partitions):
                try:
                    consumer.close()
                except IllegalStateError:
                    print("refused")
        consumer = Consumer(bootstrap_servers=bootstrap, topics=[topic], group_id=group, listener=Listener())
        consumer.start()
        while not consumer.assignment():
            consumer.poll(1000)
        """,
        bootstrap,
        topic,
        group := fresh_name("group"),
    )
    out, err = program.communicate(timeout=30)
    assert out == "refused\n"
    assert err == "1 client(s) of oncelog.sync were not closed before exit: use `with`\n"
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_groups([group])[group].members == ()


@pytest.mark.parametrize("error", ['LookupError("from a listener")', 'SystemExit("from a listener")'])
def test_exit_does_not_warn_of_a_consumer_whose_listener_failed_while_it_was_closed(
    bootstrap: str, topic: str, fresh_name: Names, error: str
) -> None:
    program = script(
        f"""if True:
        import sys
        from oncelog import RebalanceListener
        from oncelog.sync import Consumer
        bootstrap, topic, group = sys.argv[1:]
        class Listener(RebalanceListener):
            def on_partitions_revoked(self, partitions):
                raise {error}
        consumer = Consumer(bootstrap_servers=bootstrap, topics=[topic], group_id=group, listener=Listener())
        consumer.start()
        while not consumer.assignment():
            consumer.poll(1000)
        try:
            consumer.close()
        except (LookupError, SystemExit) as error:
            print(error)
        """,
        bootstrap,
        topic,
        fresh_name("group"),
    )
    assert program.communicate(timeout=30) == ("from a listener\n", "")


@pytest.mark.parametrize("error", ["SystemExit", "asyncio.CancelledError"])
def test_exit_closes_every_client_although_a_close_exits(error: str) -> None:
    program = script(
        CLOSES
        + f"""if True:
        def fail():
            raise {error}("from a close")
        Facade(Client(lambda: print("closed"))).__enter__()
        Facade(Client(fail)).__enter__()
        """
    )
    out, err = program.communicate(timeout=30)
    assert out == "closed\n"
    assert "could not be closed: from a close" in err


def test_exit_closes_older_clients_while_a_newer_client_closes_and_a_broker_after_these() -> None:
    program = script(
        CLOSES
        + """if True:
        class BrokerFacade(Facade):
            _is_broker = True
        class ClosesAfterAnOlderClient(Client):
            async def __aexit__(self, *error):
                while not older.closing.is_set():
                    await asyncio.sleep(0.01)
                await super().__aexit__(*error)
        older = Client(lambda: print("older"), takes_s=0)
        BrokerFacade(Client(lambda: print("broker"), takes_s=0)).__enter__()
        Facade(older).__enter__()
        Facade(ClosesAfterAnOlderClient(lambda: print("newer"))).__enter__()
        """
    )
    out, _ = program.communicate(timeout=30)
    assert out == "older\nnewer\nbroker\n"


def test_exit_waits_for_a_daemon_thread_that_closes_a_client() -> None:
    program = script(
        CLOSES
        + """if True:
        close_in_daemon_thread(Client(lambda: print("closed")))
        """
    )
    out, err = program.communicate(timeout=30)
    assert (out, err) == ("closed\n", "")


def test_exit_closes_no_client_that_a_client_of_a_daemon_thread_may_need() -> None:
    program = script(
        CLOSES
        + """if True:
        Facade(Client(lambda: print("older"), takes_s=0)).__enter__()
        close_in_daemon_thread(Client(lambda: print("newer")))
        """
    )
    out, err = program.communicate(timeout=30)
    assert out == "newer\nolder\n"
    assert err == "1 client(s) of oncelog.sync were not closed before exit: use `with`\n"


@pytest.mark.parametrize("error", ["IllegalStateError('not now')", "CancelledError()"])
def test_exit_waits_for_a_daemon_thread_although_another_close_failed(error: str) -> None:
    program = script(
        CLOSES
        + f"""if True:
        from asyncio import CancelledError
        from oncelog import IllegalStateError
        class ClosesOnce(Client):
            async def __aexit__(self, *error):
                if not self.is_open:
                    raise {error}
                await super().__aexit__(*error)
        Facade(Client(lambda: print("older"), takes_s=0)).__enter__()
        newer = close_in_daemon_thread(ClosesOnce(lambda: print("newer")))
        try:
            newer.__exit__(None, None, None)
        except BaseException:
            print("failed")
        """
    )
    out, _ = program.communicate(timeout=30)
    assert out == "failed\nnewer\nolder\n"


def test_exit_does_not_wait_for_a_callback_that_blocks_the_event_loop() -> None:
    program = script(
        CLOSES
        + """if True:
        blocked = threading.Event()
        def block():
            blocked.set()
            threading.Event().wait()
        close_in_daemon_thread(Client(block))
        blocked.wait()
        """
    )
    try:
        _, err = program.communicate(timeout=30)
    finally:
        program.kill()
    assert err == "clients of oncelog.sync could not be closed within 5 s\n"


@pytest.mark.oncelog_only(reason="starts a broker of its own")
def test_exit_closes_clients_before_the_broker_that_they_need(tmp_path: Path) -> None:
    program = script(
        """if True:
        import sys
        from oncelog.sync import Broker, Producer
        broker = Broker(sys.argv[1])
        broker.start()
        producer = Producer(bootstrap_servers=broker.address, linger_ms=60000)
        producer.start()
        producer.send("t", b"sent", partition=0)
        """,
        str(tmp_path),
    )
    _, err = program.communicate(timeout=30)
    assert err == "2 client(s) of oncelog.sync were not closed before exit: use `with`\n"
    with Broker(tmp_path) as broker:
        assert read_all(broker.address, "t") == [b"sent"]


def test_exit_does_not_wait_for_a_broker_that_is_gone(bootstrap: str, topic: str) -> None:
    program = script(
        """if True:
        import sys
        import oncelog.sync.background
        oncelog.sync.background.EXIT_TIMEOUT_S = 0.2
        from oncelog.sync import Broker, Producer
        broker = Broker(logging_level="error")
        broker.start()
        producer = Producer(bootstrap_servers=broker.address, linger_ms=60000)
        producer.start()
        producer.send("t", b"lost")
        broker.stop()
        """
    )
    _, err = program.communicate(timeout=30)
    assert program.returncode == 0
    assert "could not be closed within 0.2 s" in err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_clients_do_not_survive_a_fork_and_the_child_makes_its_own(bootstrap: str, topic: str) -> None:
    program = script(
        """if True:
        import os, sys
        from oncelog import IllegalStateError
        from oncelog.sync import Producer
        bootstrap, topic = sys.argv[1:]
        later = Producer(bootstrap_servers=bootstrap)
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"parent").result()
            child = os.fork()
            if child == 0:
                try:
                    producer.send(topic, b"never")
                except IllegalStateError as error:
                    print(error, flush=True)
                with later:
                    later.send(topic, b"child").result()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            producer.send(topic, b"parent again").result()
        """,
        bootstrap,
        topic,
    )
    out, err = program.communicate(timeout=30)
    assert (err, program.returncode) == ("", 0)
    assert "do not survive a fork: make a new one in this process" in out
    assert read_all(bootstrap, topic) == [b"parent", b"child", b"parent again"]


# ---- the same methods

WITHOUT = {"getone", "commit_async", "enqueue", "failed"}
"""`commit_async` and `failed` need an event loop, and `send` waits for room as `enqueue` does."""


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_every_method_has_its_blocking_form(name: str) -> None:
    client, facade = getattr(oncelog, name), getattr(sync, name)
    for method, function in inspect.getmembers(client, inspect.isfunction):
        if method.startswith("_") or method in WITHOUT:
            continue
        blocking = getattr(facade, method)
        assert not inspect.iscoroutinefunction(blocking), method
        assert list(inspect.signature(blocking).parameters) == list(inspect.signature(function).parameters), method
        assert inspect.getdoc(blocking), method
