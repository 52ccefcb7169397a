"""`Processor`: consume-transform-produce with the input offsets in the same transaction, so that every input record
takes effect exactly once.

A processor owns its workers. `worker.py` contains the steps of a worker, and `producers.py` a worker's producers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Generic, Self, Unpack

from ..config import ConsumerConfig, ProducerConfig
from ..consumer.deserialization import RecordDeserializer
from ..errors import ConfigError, IllegalStateError
from ..keywords import ProcessorKeywords
from ..producer.serialization import RecordSerializer
from ..serialization.protocols import DeserializerLike, K, SentK, SentV, SerializerLike, V
from ..settings import mapping_of
from ..validation import count_setting, duration_setting, without_none
from .metrics import Metrics
from .options import (
    GroupAware,
    Process,
    ProcessorOptions,
    Transform,
    deserialized,
    each,
    settings_without,
    shared_settings,
    take_serdes,
)
from .processes import WorkerProcesses
from .worker import Worker


class Processor(Generic[K, V, SentK, SentV]):
    """Reads topics, runs a function on the records, and writes the function's results, exactly once.

    ::

        async with Processor(
            bootstrap_servers="127.0.0.1:9092",
            topics=["in"],
            group_id="job",
            transactional_id="job-1",
            transform=lambda record: [OutputRecord("out", record.value)],
        ) as processor:
            await processor.run()

    Give one of two functions. `process(records, transaction)` is called once per transaction and sends with
    `transaction.send`. `transform(record)` returns the output records of one record: a list, a generator, or None to
    filter the record out. Both may be plain or async. They may be called again with the same records after an abort, so
    they must have no effects outside of the transaction. When the group rebalances, an async function is cancelled and
    its transaction aborted.

    `consumer_group_aware_transaction`: with True (default) each worker has one producer, named `transactional_id`. Each
    worker needs its own `transactional_id`, which must stay the same across restarts. If the broker has no group-aware
    transactions, the worker uses KIP-447 instead; with "require" it raises UnsupportedVersionError. With False each
    input partition has a producer, named `{application_id}-{topic}-{partition}` (`application_id` defaults to the
    group's id). The function then gets the records of one partition, and an async function runs for several partitions
    at the same time. During an upgrade, members with True and with False may share a group.

    An exception of the function ends `run()`. A note on the exception names the topic, partition and offsets of the
    batch's records. With a `dead_letter_topic`, records for which the function raises an exception are sent to this
    topic, in the same transaction as their offsets.

    In `Processor[K, V, K2, V2]`, K and V are the types of the input's keys and values, K2 and V2 those of the output.
    They follow from the deserializers and serializers; without these, keys and values are bytes. A record that cannot
    be deserialized ends `run()` with DeserializationError, or goes to the dead-letter topic as it was read. Output that
    cannot be serialized raises SerializationError in the function.

    `workers` is the number of workers that run as tasks. With more than one worker, each appends its number to
    `transactional_id` and group.instance.id. `run_processes` runs workers as processes instead. A batch ends after
    `max_batch_records` records, or `max_batch_ms` after its first record. Each of the `settings` goes to the kinds of
    client that have it. `consumer_settings` and `producer_settings` go to one kind of client only. Without committed
    offsets the processor begins with the earliest record, unless auto.offset.reset says otherwise.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        group_id: str,
        transactional_id: str | None = None,
        application_id: str | None = None,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        process: Process[K, V, SentK, SentV] | None = None,
        transform: Transform[K, V, SentK, SentV] | None = None,
        key_deserializer: DeserializerLike[K] | None = None,
        value_deserializer: DeserializerLike[V] | None = None,
        key_serializer: SerializerLike[SentK] | None = None,
        value_serializer: SerializerLike[SentV] | None = None,
        consumer_group_aware_transaction: GroupAware = True,
        dead_letter_topic: str | None = None,
        workers: int = 1,
        max_batch_records: int = 1000,
        max_batch_ms: int = 100,
        consumer_settings: Mapping[str, object] | None = None,
        producer_settings: Mapping[str, object] | None = None,
        on_progress: Callable[[Metrics], None] | None = None,
        **settings: Unpack[ProcessorKeywords],
    ) -> None:
        if (process is None) == (transform is None):
            raise ConfigError("process", "give either process or transform", "transform")
        if isinstance(topics, str):
            raise ConfigError("topics", f"{topics!r} is a string: give a list of topic names")
        workers = count_setting(workers, "workers")
        if process is None:
            assert transform is not None
            if not callable(transform):
                raise ConfigError("transform", f"{transform!r} is not callable")
            process = each(transform, dead_letters=dead_letter_topic is not None)
        elif not callable(process):
            raise ConfigError("process", f"{process!r} is not callable")
        serdes = without_none(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
        )
        both = {**mapping_of(config, "Processor"), **settings, **serdes}
        fixed = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": group_id}
        reading = shared_settings(both, ConsumerConfig) | settings_without(consumer_settings, fixed) | fixed
        if not {"auto.offset.reset", "auto_offset_reset"} & reading.keys():
            reading["auto_offset_reset"] = "earliest"  # so that no input is skipped
        own = ("transactional_id", "consumer_group_aware_transaction")
        sending = shared_settings(both, ProducerConfig) | settings_without(producer_settings, own)
        deserialize = RecordDeserializer.of(*take_serdes(reading, "deserializer"))
        options = ProcessorOptions(
            topics=tuple(topics),
            pattern=pattern,
            process=process if deserialize is None else deserialized(process, deserialize),
            serialize=RecordSerializer.of(*take_serdes(sending, "serializer")),
            application_id=application_id or group_id,
            transactional_id=transactional_id,
            group_aware=consumer_group_aware_transaction,
            dead_letter_topic=dead_letter_topic,
            max_batch_records=count_setting(max_batch_records, "max_batch_records"),
            max_batch_s=duration_setting(max_batch_ms, "max_batch_ms") / 1000,
            consumer_settings=reading,
            producer_settings=sending,
            on_progress=on_progress,
        )
        self.metrics = Metrics()
        each_options = [options] if workers == 1 else [options.of_worker(number) for number in range(workers)]
        self._workers = [Worker(one, self.metrics) for one in each_options]
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Connect to the cluster and initialise the producers. Raises KafkaTimeoutError if that takes too long."""
        started: list[Worker] = []
        try:
            for worker in self._workers:
                await worker.start()
                started.append(worker)
        except BaseException as error:
            await _close(started, error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel a running `run()` and close all workers.

        When a cancellation ends the block, each step waits for the broker for cancel.grace.ms at most.
        """
        for task in self._running:
            task.cancel()
        try:
            await asyncio.gather(*self._running, return_exceptions=True)
        except asyncio.CancelledError as cancelled:
            error = cancelled
            raise
        finally:
            await _close(self._workers, error)

    @staticmethod
    async def run_processes(
        factory: str,
        *,
        workers: int = 1,
        arguments: Mapping[str, object] | None = None,
        restarts: int = 5,
        restart_window_s: float = 60.0,
        stop_timeout_s: float = 30.0,
    ) -> None:
        """Run workers as processes until SIGTERM or SIGINT, as WorkerProcesses does. Raises WorkerDiedError."""
        await WorkerProcesses(
            factory,
            workers=workers,
            arguments=arguments,
            restarts=restarts,
            restart_window_s=restart_window_s,
            stop_timeout_s=stop_timeout_s,
        ).run()

    def stop(self) -> None:
        """Finish the open transactions and make `run()` return. May be used as a signal handler of the event loop."""
        for worker in self._workers:
            worker.stop()

    async def run(self) -> None:
        """Process records until `stop()` is called.

        Raises the error of the first worker that fails, for example an exception of the function, ProducerFencedError,
        FencedInstanceError or AuthorizationError. A failure or a cancellation aborts the open transactions. If the
        function raises CancelledError although `run()` was not cancelled, this is a failure as well, and RuntimeError
        is raised.
        """
        if self._running:
            raise IllegalStateError("run() is running already")
        self._running = tasks = [
            asyncio.create_task(worker.run(), name=f"worker {number}") for number, worker in enumerate(self._workers)
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            self._running = []
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, asyncio.CancelledError):
                raise failure
        if failures:
            raise failures[0]


async def _close(workers: Iterable[Worker], error: BaseException | None) -> None:
    for outcome in await asyncio.gather(*(worker.close(error) for worker in workers), return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
