"""`ProcessorOptions`: the options of a processor, checked once and shared by all of its workers."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

from ..config import ClientConfig, ConsumerConfig, ProducerConfig
from ..consumer import ConsumerRecord, DeserializationError
from ..consumer.deserialization import RecordDeserializer
from ..errors import ConfigError
from ..producer.serialization import RecordSerializer
from ..serialization.protocols import K, NotReadyError, SentK, SentV, V
from .metrics import Metrics
from .transaction import OutputRecord, ProcessorTransaction

log = logging.getLogger(__name__)

Process: TypeAlias = Callable[[list[ConsumerRecord[K, V]], ProcessorTransaction[SentK, SentV]], Awaitable[None] | None]
"""Processes the records of one transaction, and sends the output records with the transaction object. Either plain or
async.
"""
Outputs: TypeAlias = Iterable[OutputRecord[SentK, SentV]] | None
"""The output records of one input record. None and an empty list both filter the record out."""
Transform: TypeAlias = Callable[
    [ConsumerRecord[K, V]],
    Outputs[SentK, SentV] | Awaitable[Outputs[SentK, SentV]] | AsyncIterable[OutputRecord[SentK, SentV]],
]
"""Returns the output records of one input record. Either plain or async, and possibly a generator."""
GroupAware: TypeAlias = bool | Literal["require"]
"""Values of `consumer_group_aware_transaction`: one producer per worker (True), the same but without the fallback to
KIP-447 ("require"), or one producer per input partition (False).
"""

_INSTANCE = "group_instance_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorOptions:
    """The checked arguments of `Processor`."""

    topics: tuple[str, ...]
    pattern: str | None
    process: Process[Any, Any, Any, Any]
    serialize: RecordSerializer | None = None
    application_id: str
    transactional_id: str | None
    group_aware: GroupAware
    dead_letter_topic: str | None
    max_batch_records: int
    max_batch_s: float
    consumer_settings: Mapping[str, object]
    producer_settings: Mapping[str, object]
    on_progress: Callable[[Metrics], None] | None

    def __post_init__(self) -> None:
        if self.group_aware not in (True, False, "require"):
            raise ConfigError("consumer.group.aware.transaction", f"{self.group_aware!r} is not True, False or require")
        if self.group_aware and not self.transactional_id:
            raise ConfigError(
                "transactional_id",
                "is missing: give each worker its own id, which stays the same across restarts; or set "
                "consumer_group_aware_transaction=False: then each input partition has a producer and an id",
                "consumer_group_aware_transaction",
            )
        self._check_topics()

    def _check_topics(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise ConfigError("topics", "give either topics or a pattern", "pattern")
        wrong = next((name for name in self.topics if not isinstance(name, str)), None)
        if wrong is not None:
            raise ConfigError("topics", f"{wrong!r} is not a topic's name")
        dead, pattern = self.dead_letter_topic, None
        if self.pattern is not None:
            try:
                pattern = re.compile(self.pattern)
            except re.error as error:
                raise ConfigError("pattern", f"{self.pattern!r} is not a regular expression: {error}") from None
        if dead is not None and (dead in self.topics or (pattern is not None and pattern.fullmatch(dead))):
            raise ConfigError(
                "dead_letter_topic",
                f"{dead!r} is an input topic as well, so its records would be processed again: choose another topic",
                "topics",
            )

    def of_worker(self, number: int) -> Self:
        """Return the options of worker `number`. Its transactional.id and group.instance.id end with the number."""
        names: dict[str, object] = {}
        if self.transactional_id:
            names["transactional_id"] = f"{self.transactional_id}-{number}"
        instance = next((key for key in self.consumer_settings if key.replace(".", "_") == _INSTANCE), None)
        if instance is not None and self.consumer_settings[instance] is not None:
            own = {instance: f"{self.consumer_settings[instance]}-{number}"}
            names["consumer_settings"] = {**self.consumer_settings, **own}
        return replace(self, **names)  # type: ignore[arg-type]


def shared_settings(settings: Mapping[str, object], kind: type[ClientConfig]) -> dict[str, object]:
    """Return the settings for one `kind` of client (producer or consumer), without those that only the other kind
    knows.

    A setting that neither kind knows is kept, so that the client refuses it.
    """
    other = ProducerConfig if kind is ConsumerConfig else ConsumerConfig
    its_own = other.rows.keys() - kind.rows.keys()
    return {name: value for name, value in settings.items() if name.replace("_", ".") not in its_own}


def settings_without(settings: Mapping[str, object] | None, fixed: Iterable[str]) -> dict[str, object]:
    """Return a copy of settings. Raises ConfigError for a setting that the processor sets itself."""
    given = dict(settings or {})
    for name in given:
        if name.replace(".", "_") in fixed:
            raise ConfigError(name.replace("_", "."), "is set by the processor itself: leave it out")
    return given


def take_serdes(settings: dict[str, object], kind: str) -> tuple[object, object]:
    """Remove the (de)serializers of keys and of values from `settings`, and return them. `kind` is serializer or
    deserializer. Raises ConfigError for a value that is not of this kind.
    """
    parts = [f"{part}.{kind}" for part in ("key", "value")]
    given = {name: settings.pop(name) for name in list(settings) if name.replace("_", ".") in parts}
    table = (ConsumerConfig if kind == "deserializer" else ProducerConfig).of(given)
    return getattr(table, f"key_{kind}"), getattr(table, f"value_{kind}")


def deserialized(
    process: Process[K, V, SentK, SentV], deserialize: RecordDeserializer
) -> Process[bytes, bytes, SentK, SentV]:
    """Return a processing function that takes records whose keys and values are bytes, deserializes them, and calls
    `process`.

    A record that cannot be deserialized goes to the dead-letter topic, if there is one.
    """

    async def process_deserialized(
        records: list[ConsumerRecord], transaction: ProcessorTransaction[SentK, SentV]
    ) -> object:
        readable: list[ConsumerRecord[Any, Any]] = []
        for record in records:
            try:
                try:
                    readable.append(deserialize(record))
                except NotReadyError:
                    readable.append(await deserialize.waiting(record))
            except DeserializationError as error:
                if not transaction.is_poison(error):
                    error.add_note("with a dead_letter_topic, the processor sends such records there")
                    raise
                transaction.dead_letter(record, error)
        result: object = process(readable, transaction) if readable else None
        return await result if inspect.isawaitable(result) else result

    return process_deserialized  # type: ignore[return-value] # may return a generator, which the worker refuses


def each(transform: Transform[K, V, SentK, SentV], *, dead_letters: bool) -> Process[K, V, SentK, SentV]:
    """Return a processing function that transforms record by record.

    With `dead_letters`, a record whose transformation raises an exception goes to the dead-letter topic at once,
    because none of its output has been sent yet.
    """

    async def process(records: list[ConsumerRecord[K, V]], transaction: ProcessorTransaction[SentK, SentV]) -> None:
        for record in records:
            try:
                outputs = await _transformed(transform, record)
            except Exception as error:
                _note_origin(error, record)
                if not dead_letters or not transaction.is_poison(error):
                    raise
                transaction.dead_letter(record, error)
                continue
            try:
                for output in outputs:
                    transaction.send(*output)
            except Exception as error:
                _note_origin(error, record)
                raise

    return process


async def _transformed(
    transform: Transform[K, V, SentK, SentV], record: ConsumerRecord[K, V]
) -> list[OutputRecord[SentK, SentV]]:
    made = transform(record)
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, AsyncIterable):
        made = [output async for output in made]
    if made is None:
        return []
    if isinstance(made, OutputRecord):
        raise TypeError("transform returned an OutputRecord: return a list of them, or make transform a generator")
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise TypeError(f"transform returned {made!r:.100}, {_WANTED}")
    return [_output(output) for output in made]


_WANTED = "not a list of OutputRecords: return a list, make transform a generator, or return None to send nothing"


def _output(made: object) -> OutputRecord[Any, Any]:
    if isinstance(made, OutputRecord):
        return made
    if isinstance(made, tuple) and 2 <= len(made) <= len(OutputRecord._fields):
        return OutputRecord(*made)
    raise TypeError(f"transform returned a list that contains {made!r:.100}, {_WANTED}")


def _note_origin(error: Exception, record: ConsumerRecord[Any, Any]) -> None:
    if isinstance(record, ConsumerRecord):
        error.add_note(f"while transforming the record of {record.topic}-{record.partition} at offset {record.offset}")
