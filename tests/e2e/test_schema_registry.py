"""Values in a schema registry's wire format: to and from confluent-kafka's own serializers, with the registry away, and
without blocking the event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import oncelog.sync
import pytest
from oncelog import (
    AvroSerde,
    ConfigError,
    Consumer,
    ConsumerRecord,
    DeserializationError,
    IllegalStateError,
    JsonSchemaSerde,
    OutputRecord,
    Producer,
    ProtobufSerde,
    SchemaRegistry,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from support.fake_schema_registry import FakeSchemaRegistry
from support.processing_job import Job, Names, stop
from support.reading import make_topic, read_topic, values

pytest.importorskip("fastavro", reason="needs the extra: pip install 'oncelog[schema]'")

from confluent_kafka import Producer as StockProducer
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    avro,
    json_schema,
    protobuf,
    record_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fresh = Callable[[str], str]

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item", "count"],
    }
)
BY_RECORD = {"subject.name.strategy": record_subject_name_strategy}
APPLES = {"item": "apples", "count": 42}


@dataclasses.dataclass
class Order:
    item: str
    count: int


def order_message() -> Any:
    """Return the class that protoc would generate for `message Order {string item = 1; int32 count = 2;}`."""
    file = descriptor_pb2.FileDescriptorProto(name="oncelog_order.proto", package="oncelog.tests", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="item", number=1, type=9, label=1)
    message.field.add(name="count", number=2, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("oncelog.tests.Order"))


Message = order_message()


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as registry:
        yield registry


def client(registry: FakeSchemaRegistry) -> SchemaRegistry:
    return registry.clients.enter_context(SchemaRegistry(registry.url, {"max.retries": 0}))


def order_serde(registry: FakeSchemaRegistry) -> AvroSerde[Order]:
    return AvroSerde(client(registry), AVRO, to_dict=dataclasses.asdict, from_dict=lambda given: Order(**given))


class Format:
    """A serde of ours, and confluent-kafka's serializer and deserializer of the same format."""

    def __init__(self, name: str, registry: FakeSchemaRegistry) -> None:
        theirs = registry.clients.enter_context(SchemaRegistryClient({"url": registry.url}))
        self.value: Any = APPLES
        self.serde: Any
        if name == "avro":
            self.serde = AvroSerde(client(registry), AVRO)
            self.write: Any = avro.AvroSerializer(theirs, AVRO)  # pyright: ignore[reportCallIssue]
            self.read: Any = avro.AvroDeserializer(theirs)  # pyright: ignore[reportCallIssue]
        elif name == "json":
            self.serde = JsonSchemaSerde(client(registry), JSON_SCHEMA)
            self.write = json_schema.JSONSerializer(JSON_SCHEMA, theirs)  # pyright: ignore[reportCallIssue]
            self.read = json_schema.JSONDeserializer(JSON_SCHEMA)  # pyright: ignore[reportCallIssue]
        else:
            self.serde = ProtobufSerde(client(registry), Message)
            self.write = protobuf.ProtobufSerializer(Message, theirs)  # pyright: ignore[reportCallIssue]
            self.read = protobuf.ProtobufDeserializer(Message)  # pyright: ignore[reportCallIssue]
            self.value = Message(**APPLES)


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
async def test_confluents_deserializer_reads_what_we_write(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry, name: str
) -> None:
    topic, format = make_topic(bootstrap, fresh_name("topic")), Format(name, registry)
    async with Producer(bootstrap_servers=bootstrap, value_serializer=format.serde) as producer:
        await producer.enqueue(topic, format.value)
        await producer.send(topic, format.value)  # the schema is known now
        await producer.send(topic, None)
    written: list[Any] = [message.value() for message in read_topic(bootstrap, topic)[0]]
    context = SerializationContext(topic, MessageField.VALUE)
    read = await asyncio.to_thread(lambda: [format.read(data, context) for data in written])
    assert read == [format.value, format.value, None]
    assert written[0][:5] == b"\x00\x00\x00\x00\x01"
    assert registry.requests.count(("POST", f"/subjects/{topic}-value/versions")) == 1


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("one_by_one", [False, True])
async def test_we_read_what_confluents_serializer_writes(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry, name: str, one_by_one: bool
) -> None:
    topic, format = make_topic(bootstrap, fresh_name("topic")), Format(name, registry)
    context = SerializationContext(topic, MessageField.VALUE)
    stock = StockProducer({"bootstrap.servers": bootstrap})
    for value in (format.value, None, format.value):
        data = None if value is None else await asyncio.to_thread(format.write, value, context)
        stock.produce(topic, data)
    assert stock.flush(30) == 0
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=format.serde) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        found: list[Any] = []
        async with asyncio.timeout(30):
            while len(found) < 3:
                found += [await anext(consumer)] if one_by_one else await consumer.poll(1000)
    assert [record.value for record in found] == [format.value, None, format.value]


async def test_keys_have_subjects_of_their_own_and_objects_their_conversion(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    key: AvroSerde[str] = AvroSerde(client(registry), '"string"', key=True)
    async with Producer(
        bootstrap_servers=bootstrap, key_serializer=key, value_serializer=order_serde(registry)
    ) as producer:
        await producer.enqueue(topic, Order("apples", 42), key="alice")
    async with Consumer(
        bootstrap_servers=bootstrap, key_deserializer=key, value_deserializer=order_serde(registry)
    ) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        record = await anext(consumer)
    assert (record.key, record.value) == ("alice", Order("apples", 42))
    posted = [path for method, path in registry.requests if method == "POST"]
    assert posted == [f"/subjects/{topic}-key/versions", f"/subjects/{topic}-value/versions"]


async def test_the_event_loop_runs_while_the_registry_is_asked(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    """The registry answers only after the event loop has run meanwhile."""
    topic, loop, ran = make_topic(bootstrap, fresh_name("topic")), asyncio.get_running_loop(), threading.Event()
    waited: list[bool] = []

    def until_the_loop_has_run() -> None:
        loop.call_soon_threadsafe(ran.set)
        waited.append(ran.wait(10))
        ran.clear()

    registry.on_request = until_the_loop_has_run
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        await producer.enqueue(topic, Order("apples", 42))
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=order_serde(registry)) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        assert (await anext(consumer)).value == Order("apples", 42)
    assert waited == [True] * len(registry.requests)
    assert len(waited) == 2


async def test_send_cannot_wait_for_the_registry_and_says_what_can(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        with pytest.raises(SerializationError, match=rf"{topic}.*await enqueue"):
            producer.send(topic, Order("apples", 42))
    assert values(bootstrap, topic) == []


async def test_a_value_that_does_not_fit_the_schema_is_refused(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    for name in ("avro", "json"):
        async with Producer(bootstrap_servers=bootstrap, value_serializer=Format(name, registry).serde) as producer:
            for _ in range(2):
                with pytest.raises(SerializationError, match=f"value .*{topic}.*Serde"):
                    await producer.enqueue(topic, {"item": "apples", "count": "many"})
    assert values(bootstrap, topic) == []


async def test_while_the_registry_is_away_nothing_is_lost_and_it_is_asked_again(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    registry.fails_with = 503
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        with pytest.raises(SchemaRegistryUnavailableError, match=f"{registry.url} is not available.*503"):
            await producer.enqueue(topic, Order("apples", 1))
        registry.fails_with = 0
        await producer.enqueue(topic, Order("apples", 2))
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=order_serde(registry)) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        registry.fails_with = 503
        for _ in range(2):
            with pytest.raises(SchemaRegistryUnavailableError):
                await anext(consumer)
            assert await consumer.position((topic, 0)) == 0
        registry.fails_with = 0
        assert (await anext(consumer)).value == Order("apples", 2)


async def test_a_registry_that_does_not_answer_is_named(bootstrap: str, fresh_name: Fresh) -> None:
    with FakeSchemaRegistry() as registry:
        serde = order_serde(registry)
    async with Producer(bootstrap_servers=bootstrap, value_serializer=serde) as producer:
        with pytest.raises(SchemaRegistryUnavailableError, match=registry.url):
            await producer.enqueue(make_topic(bootstrap, fresh_name("topic")), Order("apples", 1))


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x00\x63\x00", b"no magic", b""])
async def test_what_is_not_in_the_format_or_has_an_unknown_schema_can_be_skipped(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry, data: bytes
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))
    async with Producer(bootstrap_servers=bootstrap) as raw:
        await raw.send(topic, data)
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        await producer.enqueue(topic, Order("apples", 42))
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=order_serde(registry)) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        for _ in range(2):
            with pytest.raises(DeserializationError, match=f"{topic}-0 at offset 0") as raised:
                await anext(consumer)
        assert raised.value.record.value == data
        consumer.seek(raised.value.partition, raised.value.next_offset)
        assert (await anext(consumer)).value == Order("apples", 42)


async def test_records_of_one_partition_are_not_lost_while_another_waits_for_its_schema(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"), partitions=3)
    for partition in range(3):
        schema = AVRO.replace("Order", f"Order{partition}")
        serde: AvroSerde[Any] = AvroSerde(client(registry), schema, serializer_settings=BY_RECORD)
        async with Producer(bootstrap_servers=bootstrap, value_serializer=serde) as producer:
            for count in range(3):
                await producer.enqueue(topic, {"item": "apples", "count": count}, partition=partition)
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=AvroSerde(client(registry))) as consumer:
        consumer.assign([(topic, partition) for partition in range(3)])
        await consumer.seek_to_beginning()
        seen: list[tuple[int, int]] = []
        async with asyncio.timeout(30):
            while sum([await consumer.lag((topic, partition)) for partition in range(3)]):
                seen += [(record.partition, record.offset) for record in await consumer.poll(1000)]
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(3)]


async def test_a_poll_that_ends_before_the_registry_answers_goes_on_later(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic, asked, go = make_topic(bootstrap, fresh_name("topic")), threading.Event(), threading.Event()
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        await producer.enqueue(topic, Order("apples", 42))

    def hold() -> None:
        asked.set()
        go.wait(30)

    registry.on_request = hold
    before = len(registry.requests)
    async with Consumer(bootstrap_servers=bootstrap, value_deserializer=order_serde(registry)) as consumer:
        consumer.assign([(topic, 0)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(30):
            while not asked.is_set():
                assert await consumer.poll(50) == []
            assert await consumer.poll(50) == []
            go.set()
            while not (found := await consumer.poll(50)):
                pass
    assert [record.value for record in found] == [Order("apples", 42)]
    assert len(registry.requests) == before + 1


async def test_a_record_that_waited_for_its_schema_does_not_get_into_the_next_transaction(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic, loop = make_topic(bootstrap, fresh_name("topic")), asyncio.get_running_loop()
    asked, go = asyncio.Event(), threading.Event()

    def hold() -> None:
        loop.call_soon_threadsafe(asked.set)
        go.wait(30)

    registry.on_request = hold
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id=fresh_name("id"), value_serializer=order_serde(registry)
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        straggler = asyncio.create_task(producer.enqueue(topic, Order("apples", 42)))
        await asked.wait()
        await producer.abort_transaction()
        async with producer.transaction():
            go.set()
            with pytest.raises(IllegalStateError, match="has ended"):
                await straggler
    assert values(bootstrap, topic) == []


async def test_a_poll_that_waits_for_the_registry_can_be_woken_and_the_consumer_closed(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic, loop = make_topic(bootstrap, fresh_name("topic")), asyncio.get_running_loop()
    asked, go = asyncio.Event(), threading.Event()
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        await producer.enqueue(topic, Order("apples", 42))

    def hold() -> None:
        loop.call_soon_threadsafe(asked.set)
        go.wait(30)

    registry.on_request = hold
    async with asyncio.timeout(25):
        async with Consumer(bootstrap_servers=bootstrap, value_deserializer=order_serde(registry)) as consumer:
            consumer.assign([(topic, 0)])
            await consumer.seek_to_beginning()
            polling = asyncio.create_task(consumer.poll(60_000))
            await asked.wait()
            consumer.wakeup()
            assert await polling == []
    go.set()


@pytest.mark.parametrize("kind", ["process", "transform"])
async def test_a_processor_reads_and_writes_with_schemas(
    bootstrap: str, fresh_name: Names, registry: FakeSchemaRegistry, kind: str
) -> None:
    job = Job(bootstrap, fresh_name)
    await job.create()
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        for count in range(6):
            await producer.enqueue(job.source, Order("apples", count), partition=0)

    def transform(record: ConsumerRecord[bytes, Order]) -> list[OutputRecord[bytes, Order]]:
        return [OutputRecord(job.target, record.value, partition=0)]

    def process(records: list[ConsumerRecord[bytes, Order]], transaction: Any) -> None:
        for record in records:
            transaction.send(job.target, record.value, partition=0)

    functions: dict[str, Any] = {"process": process, "transform": transform}
    async with job.processor(
        value_deserializer=order_serde(registry),
        value_serializer=order_serde(registry),
        **{kind: functions[kind]},
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(6)
        await stop(processor, running)
    copies = await job.copies(6, value_deserializer=order_serde(registry))
    assert [copy.value for copy in copies] == [Order("apples", count) for count in range(6)]


async def test_an_object_that_waits_for_its_schema_keeps_the_content_it_was_sent_with(
    bootstrap: str, fresh_name: Names, registry: FakeSchemaRegistry
) -> None:
    job = Job(bootstrap, fresh_name)
    await job.create()
    await job.fill(range(6))
    order = Order("apples", 0)

    def reuse(records: list[ConsumerRecord[bytes, bytes]], transaction: Any) -> None:
        for record in records:
            order.count = int(record.value or b"")
            transaction.send(job.target, order, key=record.value, partition=0)

    async with job.processor(process=reuse, value_serializer=order_serde(registry)) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(6)
        await stop(processor, running)
    copies = await job.copies(6, value_deserializer=order_serde(registry))
    assert [copy.value for copy in copies] == [Order("apples", int(copy.key or b"")) for copy in copies]


async def test_a_processor_waits_for_a_registry_that_is_away_and_buries_nothing(
    bootstrap: str, fresh_name: Names, registry: FakeSchemaRegistry
) -> None:
    job = Job(bootstrap, fresh_name)
    job.dead = fresh_name("dead")
    await job.create(job.dead)
    async with Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
        await producer.enqueue(job.source, Order("apples", 42), partition=0)
    failures = [503, 503, 0, 503]

    def fail() -> None:
        registry.fails_with = failures.pop(0) if failures else 0

    registry.on_request = fail
    async with job.processor(
        dead_letter_topic=job.dead,
        value_deserializer=order_serde(registry),
        value_serializer=order_serde(registry),
        transform=lambda record: [OutputRecord(job.target, record.value, partition=0)],
    ) as processor:
        running = asyncio.create_task(processor.run())
        await job.until_committed(1)
        await stop(processor, running)
        assert (processor.metrics.dead_letters, processor.metrics.records_out) == (0, 1)
    assert not failures


async def test_the_blocking_clients_wait_for_the_registry(
    bootstrap: str, fresh_name: Fresh, registry: FakeSchemaRegistry
) -> None:
    topic = make_topic(bootstrap, fresh_name("topic"))

    def work() -> None:
        with oncelog.sync.Producer(bootstrap_servers=bootstrap, value_serializer=order_serde(registry)) as producer:
            producer.send(topic, Order("apples", 42)).result()
        with oncelog.sync.Consumer(bootstrap_servers=bootstrap, value_deserializer=order_serde(registry)) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek_to_beginning()
            assert next(consumer).value == Order("apples", 42)

    await asyncio.to_thread(work)


@pytest.mark.parametrize(("name", "argument"), [("timeout", "timeout_s"), ("url", "url")])
def test_an_argument_is_not_given_as_a_setting_too(name: str, argument: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .* pass the argument {argument}"):
        SchemaRegistry("http://127.0.0.1:8081", {name: 5, "max.retries": 0}, timeout_s=3)


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ImportError, match=r"pip install 'oncelog\[schema\]'"):
        SchemaRegistry("http://127.0.0.1:8081")
