"""`Consumer`: the blocking consumer."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, Self, Unpack

from ..client.config import ConsumerConfig
from ..client.consumer import Consumer as AsyncConsumer
from ..client.consumer import ConsumerRecord, RebalanceListener
from ..client.consumer.listener import check_listener, settle
from ..client.errors import IllegalStateError
from ..client.keywords import ConsumerKeywords
from ..client.serialization.protocols import DeserializerLike, K, V
from ..client.values import TopicPartition
from .background import ExitedError
from .facade import Facade, blocking, on_loop


class _ThreadListener(RebalanceListener):
    """Calls a program's listener outside of the event loop, so that the listener may use the blocking consumer."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        await self._call("on_partitions_assigned", partitions)

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await self._call("on_partitions_revoked", partitions)

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        await self._call("on_partitions_lost", partitions)

    async def _call(self, name: str, partitions: set[TopicPartition]) -> None:
        method = getattr(self._listener, name)
        try:
            await settle(method, await _call_in_thread(method, partitions))
        except (SystemExit, KeyboardInterrupt) as error:
            raise ExitedError(error) from None


def _in_thread(listener: RebalanceListener | None) -> RebalanceListener | None:
    check_listener(listener)
    return None if listener is None else _ThreadListener(listener)


async def _call_in_thread(function: Callable[[set[TopicPartition]], object], partitions: set[TopicPartition]) -> object:
    """Call a function in a new daemon thread, and return its result.

    The event loop's executor is not used, because it has few threads and the interpreter waits for them at exit.
    Listeners that wait for each other, or forever, would hold up other consumers and the exit.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def settle_future(outcome: tuple[object, BaseException | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def work() -> None:
        outcome: tuple[object, BaseException | None]
        try:
            outcome = context.run(function, partitions), None
        except BaseException as error:
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile, at the interpreter's exit
            loop.call_soon_threadsafe(settle_future, outcome)

    threading.Thread(target=work, name="oncelog-listener", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result


class Consumer(Facade[AsyncConsumer[K, V]], Generic[K, V]):
    """Reads records of topics, alone or as a member of a group; `oncelog.Consumer` with blocking methods.

    ::

        with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="packing", topics=["orders"]) as consumer:
            for record in consumer:
                print(record.value)

    Iteration makes one call to the event loop's thread per record; `poll` and `getmany` return many records per call.
    Only one thread may read at a time; other threads may make other calls meanwhile. While `poll` or `close` waits, the
    methods of a rebalance listener run in a thread of their own. They may call the consumer, but must not wait for a
    lock that the waiting thread holds. With enable.auto.commit the end of a `with` block commits the offsets, unless an
    exception ends the block. The types of keys and values follow from the deserializers, as with `oncelog.Consumer`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: DeserializerLike[K] | None = None,
        value_deserializer: DeserializerLike[V] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        super().__init__(
            AsyncConsumer(
                config,
                topics=topics,
                pattern=pattern,
                listener=_in_thread(listener),
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                **settings,
            )
        )

    @property
    def config(self) -> ConsumerConfig:
        """The consumer's settings."""
        return self._client.config

    def start(self) -> None:
        """Connect to the cluster. Raises KafkaTimeoutError if no broker responds within default.api.timeout.ms."""
        self._start(self._client.start)

    def close(self, *, commit: bool = True, timeout_s: float | None = None) -> None:
        """Commit (if enable.auto.commit and `commit` are both true), leave the group, and close the connections.

        Safe to call twice. If another thread received the last returned records, they are committed only if that thread
        has since asked for more or has ended. Otherwise, it may still be processing them. A position that the program
        itself has committed stays committed. Python does not report whether an exception ended a thread, so close with
        `commit=False` if a thread has failed.
        """
        self._close(lambda: self._client.close(commit=commit, timeout_s=timeout_s))

    async def _close_at_exit(self) -> None:
        # The program may have ended with an exception, so it is unknown which records were processed.
        await self._client.close(commit=False)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """Wait for the next record, without a time limit, and return it. The iteration ends when the consumer is
        closed.
        """
        try:
            return self._background.run(self._client.__anext__, lambda record: self._take_back([record]))
        except StopAsyncIteration:
            raise StopIteration from None

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to the topics that match the pattern. Replaces the former subscription.

        The members of the group share the partitions of the topics.
        """

        async def subscribe() -> None:
            self._client.subscribe(topics, pattern=pattern, listener=_in_thread(listener))

        self._background.run(subscribe)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Return the next records, at most `max_records` (default: max.poll.records), or [] after the timeout.

        Raises the errors of `oncelog.Consumer.poll`.
        """
        return self._background.run(lambda: self._client.poll(timeout_ms, max_records), self._take_back)

    def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None, partitions: Collection[tuple[str, int]] = ()
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return the next records by partition, like `poll`. With `partitions`, return records of these partitions
        only.
        """
        return self._background.run(
            lambda: self._client.getmany(timeout_ms, max_records, partitions),
            lambda batches: self._take_back(record for records in batches.values() for record in records),
        )

    def _take_back(self, records: Iterable[ConsumerRecord[K, V]]) -> None:
        """Seek back to the first of `records` in each partition, because an interrupt kept them from the caller.

        Called in the event loop.
        """
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
        for partition, offset in first.items():
            with contextlib.suppress(IllegalStateError):  # the partition was given up meanwhile
                self._client.seek(partition, offset)

    unsubscribe = blocking(AsyncConsumer.unsubscribe)
    assign = on_loop(AsyncConsumer.assign)
    subscription = on_loop(AsyncConsumer.subscription)
    assignment = on_loop(AsyncConsumer.assignment)
    position = blocking(AsyncConsumer.position)
    seek = on_loop(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    consumed_offset = on_loop(AsyncConsumer.consumed_offset)
    is_recreated = on_loop(AsyncConsumer.is_recreated)
    wakeup = on_loop(AsyncConsumer.wakeup)
    forget_positions = on_loop(AsyncConsumer.forget_positions)
    pause = on_loop(AsyncConsumer.pause)
    resume = on_loop(AsyncConsumer.resume)
    paused = on_loop(AsyncConsumer.paused)
    lag = blocking(AsyncConsumer.lag)
    commit = blocking(AsyncConsumer.commit)
    committed = blocking(AsyncConsumer.committed)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    group_metadata = on_loop(AsyncConsumer.group_metadata)
    group_assignment = on_loop(AsyncConsumer.group_assignment)
    enforce_rebalance = on_loop(AsyncConsumer.enforce_rebalance)
    until_rebalance = blocking(AsyncConsumer.until_rebalance)
    partitions_for = blocking(AsyncConsumer.partitions_for)
