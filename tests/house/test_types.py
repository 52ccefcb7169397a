"""The types of the package, of its tests and of what users write, under two strict type checkers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, notebook_source

ROOT = EXAMPLES.parent
SOURCE = ROOT / ".build" / "src"
TOOLS = Path(sys.executable).parent
CACHE = ROOT / ".mypy_cache"
"""Kept by all tests of this file, which run in one process, one after the other."""
NO_NAMES = ("Consummer", "Produser", "import_module", "Any")
"""Misspelt names, and names that oncelog itself imports."""
UNKNOWN = 'has no attribute "{0}"|"{0}" is unknown import symbol'
WRONG = {
    **{f"the import of {name}": (f"from oncelog import {name}", UNKNOWN.format(name)) for name in NO_NAMES},
    "a class": ("oncelog.Prodducer()", "Prodducer"),
    "a producer's setting": ("oncelog.Producer(lingr_ms=5)", "lingr_ms"),
    "a consumer's setting": ("oncelog.Consumer(topics=['t'], grup_id='g')", "grup_id"),
    "an admin's setting": ("oncelog.Admin(bootstrap_server='localhost:9092')", "bootstrap_server"),
    "a processor's setting": ("oncelog.Processor(group_id='g', acks='most')", "acks"),
    "a pool's setting": ("oncelog.TransactionalProducerPool(prefix='p', transactional_id='x')", "transactional_id"),
    "a broker's setting": ("oncelog.Broker(num_partitons=3)", "num_partitons"),
    "a type": ("oncelog.Producer(linger_ms='soon')", "linger_ms|str"),
    "a choice": ("oncelog.Producer(compression_type='zip')", "compression_type|zip"),
    "a blocking client's setting": ("oncelog.sync.Producer(lingr_ms=5)", "lingr_ms"),
    "a blocking consumer's setting": ("oncelog.sync.Consumer(fetch_max_byte=5)", "fetch_max_byte"),
    "a blocking admin's setting": ("oncelog.sync.Admin(client_id=5)", "client_id|int"),
    "a blocking broker's setting": ("oncelog.sync.Broker(num_partitons=3)", "num_partitons"),
    "no serializer": ("oncelog.Producer(value_serializer=5)", "value_serializer"),
    "no deserializer": ("oncelog.Consumer(key_deserialiser=oncelog.StringSerde())", "key_deserialiser"),
    "a value of another type": ("orders.send('t', b'apples')", "Order"),
    "a key of another type": ("blocking_orders.send('t', key=5)", "str"),
    "a record of another type": ("received.value.item", "None"),
}
"""What is misspelt or wrong: the line, and what the checkers name."""
RIGHT = """from dataclasses import dataclass
from typing import assert_type

import oncelog
import oncelog.sync
from oncelog import Consumer

assert_type(Consumer(), oncelog.Consumer[bytes, bytes])
oncelog.Producer(bootstrap_servers=["a:1", "b:2"], acks="all", linger_ms=5, transactional_id="id")
oncelog.Producer({"linger.ms": "5"}, compression_type="zstd")
oncelog.Consumer(topics=["t"], group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
oncelog.Admin(bootstrap_servers="a:1,b:2")
oncelog.TransactionalProducerPool(prefix="p", size=2, linger_ms=0)
oncelog.Broker(num_partitions=3, durability="os", log_retention_ms=1000)


async def consume(consumer: oncelog.Consumer, named: dict[oncelog.TopicPartition, int]) -> None:
    await consumer.commit({("t", 0): 1})
    await consumer.commit({oncelog.TopicPartition("t", 0): oncelog.OffsetAndMetadata(1)})
    await consumer.commit(named)
    consumer.commit_async({("t", 0): oncelog.OffsetAndMetadata(1, "note")})
    await consumer.offsets_for_times({("t", 0): 1_700_000_000_000})
    await consumer.committed(("t", 0))
    await consumer.seek_to_end(("t", 0), oncelog.TopicPartition("t", 1))
    await consumer.getmany(100, partitions=[("t", 0)])


async def produce(producer: oncelog.Producer, pairs: list[tuple[str, bytes]], by_name: dict[str, bytes]) -> None:
    await producer.send("t", bytearray(b"v"), key=memoryview(b"k"), headers={"a": b"b", "c": None})
    await producer.enqueue("t", b"v", headers=pairs)
    await producer.enqueue("t", b"v", headers=by_name)
    await producer.enqueue("t", b"v", headers=(pair for pair in pairs))
    async with producer.transaction([("t", 0)]) as transaction:
        await transaction.send("t", b"v", headers=by_name)
        await transaction.send_offsets({("t", 0): 1}, oncelog.ConsumerGroupMetadata("g"))


async def manage(admin: oncelog.Admin, named: dict[oncelog.TopicPartition, int]) -> None:
    await admin.list_offsets({("t", 0): -1})
    await admin.list_offsets(named)
    await admin.delete_records({("t", 0): -1})
    await admin.alter_group_offsets("g", {("t", 0): 1})
    await admin.alter_group_offsets("g", named)


async def pooled(pool: oncelog.TransactionalProducerPool) -> None:
    async with pool.transaction() as transaction:
        await transaction.enqueue("t", bytearray(b"v"), headers={"a": b"b"})
        await transaction.send_offsets({("t", 0): 1}, oncelog.ConsumerGroupMetadata("g"))


def process(records: list[oncelog.ConsumerRecord], transaction: oncelog.ProcessorTransaction) -> None:
    for record in records:
        transaction.send("out", memoryview(b"v"), headers={"a": b"b"})
        transaction.send("out", record.value, record.key, headers=record.headers)


def transform(record: oncelog.ConsumerRecord) -> list[oncelog.OutputRecord]:
    return [oncelog.OutputRecord("out", bytearray(b"v"), headers={"a": b"b"})]


def block(consumer: oncelog.sync.Consumer, producer: oncelog.sync.Producer, admin: oncelog.sync.Admin) -> None:
    consumer.commit({("t", 0): 1})
    producer.send("t", bytearray(b"v"), headers={"a": b"b"})
    admin.list_offsets({("t", 0): -1})
    with producer.transaction() as transaction:
        transaction.send("t", b"v", headers={"a": b"b"})
        transaction.send_offsets({("t", 0): 1}, oncelog.ConsumerGroupMetadata("g"))


@dataclass
class Order:
    item: str


order_serde = oncelog.DataclassSerde(Order)
orders = oncelog.Producer(key_serializer=oncelog.StringSerde(), value_serializer=order_serde)
assert_type(orders, oncelog.Producer[str, Order])
blocking_orders = oncelog.sync.Producer(key_serializer=str.encode, value_serializer=order_serde)
assert_type(blocking_orders, oncelog.sync.Producer[str, Order])
assert_type(oncelog.Producer(), oncelog.Producer[oncelog.BytesLike, oncelog.BytesLike])
assert_type(oncelog.Consumer(), oncelog.Consumer[bytes, bytes])
assert_type(oncelog.sync.Consumer(value_deserializer=order_serde), oncelog.sync.Consumer[bytes, Order])
assert_type(oncelog.Consumer(key_deserializer=bytes.decode).subscription(), set[str])
received = oncelog.sync.Consumer(value_deserializer=order_serde).poll()[0]
assert_type(received, oncelog.ConsumerRecord[bytes, Order])
registry = oncelog.SchemaRegistry("http://127.0.0.1:8081")
oncelog.Producer(value_serializer=oncelog.AvroSerde(registry, "{}")).send("t", {"item": "apples"})


async def flow(pool: oncelog.TransactionalProducerPool[str, Order]) -> None:
    order = Order("apples")
    await orders.send("t", order, key="alice", on_delivery=lambda error, metadata: print(error, metadata))
    async with pool.transaction() as transaction:
        await transaction.enqueue("t", order, key="alice")
    consumer: oncelog.Consumer[str, Order] = oncelog.Consumer(
        key_deserializer=oncelog.StringSerde(), value_deserializer=oncelog.MsgspecSerde(Order)
    )
    async for record in consumer:
        assert_type(record.key, str | None)
        assert_type(record.value, Order | None)
        assert_type(record.raw.value, bytes | None)
    for records in (await consumer.getmany()).values():
        assert_type(records, list[oncelog.ConsumerRecord[str, Order]])


def priced(record: oncelog.ConsumerRecord[bytes, Order]) -> list[oncelog.OutputRecord[oncelog.BytesLike, str]] | None:
    return [oncelog.OutputRecord("out", record.value.item)] if record.value else None


oncelog.Processor(
    group_id="g", transform=priced, value_deserializer=order_serde, value_serializer=oncelog.StringSerde()
)
oncelog.Processor(group_id="g", transform=lambda record: [oncelog.OutputRecord("out", record.value)])
"""


def checked(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # The root folder is the package: through this link a type checker sees it under its own name.
    SOURCE.mkdir(parents=True, exist_ok=True)
    if not (SOURCE / "oncelog").is_symlink():
        (SOURCE / "oncelog").symlink_to(Path("..", ".."))
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def run_mypy(*arguments: str, cwd: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    config = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(CACHE))
    return checked(str(TOOLS / "mypy"), *config, *arguments, cwd=cwd)


def mypy(*paths: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("starlette", reason="starlette is not installed: make setup")
    return run_mypy(*map(str, paths), cwd=ROOT)


def pyright(*paths: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("pyright", reason="pyright is not installed: make setup")
    return checked(str(TOOLS / "pyright"), "--pythonpath", sys.executable, *map(str, paths))


@pytest.mark.timeout(300)
def test_mypy_strict_finds_nothing() -> None:
    bench = map(str, sorted((ROOT / "bench").glob("*.py")))
    for done in (run_mypy("-p", "oncelog"), run_mypy(".", cwd=ROOT / "tests"), run_mypy(*bench, cwd=ROOT)):
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.fixture(params=[mypy, pyright])
def checker(request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess[str]]:
    check: Callable[..., subprocess.CompletedProcess[str]] = request.param
    return check


@pytest.mark.timeout(300)
def test_examples_pass(checker: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.py"
    notebook.write_text(notebook_source(EXAMPLES / "notebook.ipynb"))
    done = checker(*sorted(EXAMPLES.glob("*.py")), notebook)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_wrong_names_and_settings_are_errors(
    checker: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    module = tmp_path / "wrong.py"
    module.write_text(RIGHT + "".join(f"{expression}\n" for expression, _ in WRONG.values()))
    done = checker(module)
    first = RIGHT.count("\n") + 1
    problems = re.findall(r"wrong\.py:(\d+).*?error: (.*)", done.stdout)
    by_line = {line: [text for number, text in problems if int(number) == line] for line in map(int, dict(problems))}
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(by_line) == list(range(first, first + len(WRONG))), done.stdout
    for line, (_, named) in enumerate(WRONG.values(), first):
        assert any(re.search(named, text) for text in by_line[line]), done.stdout
