"""What a processor is told to do: `ProcessorOptions`, checked once and then the same for all of its workers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from ..consumer import ConsumerRecord
from ..errors import ConfigError
from .metrics import Metrics
from .transaction import OutputRecord, ProcessorTransaction

Process: TypeAlias = Callable[[list[ConsumerRecord], ProcessorTransaction], Awaitable[None] | None]
Transform: TypeAlias = Callable[[ConsumerRecord], Iterable[OutputRecord] | Awaitable[Iterable[OutputRecord]]]
GroupAware: TypeAlias = bool | Literal["require"]

_INSTANCE = "group_instance_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorOptions:
    """See Processor, whose arguments these are."""

    topics: tuple[str, ...]
    pattern: str | None
    process: Process
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
                "names this worker: give each its own, the same over restarts; or set "
                "consumer_group_aware_transaction=False, with which each input partition has a producer and an id",
                "consumer_group_aware_transaction",
            )
        if self.max_batch_records < 1:
            raise ConfigError("max_batch_records", f"{self.max_batch_records} is below 1")

    def of_worker(self, number: int) -> Self:
        """Return the options of one of several workers: each has names of its own."""
        names: dict[str, object] = {}
        if self.transactional_id:
            names["transactional_id"] = f"{self.transactional_id}-{number}"
        instance = next((key for key in self.consumer_settings if key.replace(".", "_") == _INSTANCE), None)
        if instance is not None and self.consumer_settings[instance] is not None:
            own = {instance: f"{self.consumer_settings[instance]}-{number}"}
            names["consumer_settings"] = {**self.consumer_settings, **own}
        return replace(self, **names)  # type: ignore[arg-type]


def settings_without(settings: Mapping[str, object] | None, fixed: Iterable[str]) -> dict[str, object]:
    """Return a copy of the settings; raises ConfigError where they name what the processor sets itself."""
    given = dict(settings or {})
    for name in given:
        if name.replace(".", "_") in fixed:
            raise ConfigError(name.replace("_", "."), "is set by the processor itself: leave it out")
    return given


def each(transform: Transform, *, dead_letters: bool) -> Process:
    """Return a processing function that transforms record by record.

    With `dead_letters` a record whose transformation raises is sent there at once: nothing of it was sent before.
    """

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            try:
                made = transform(record)
                outputs = list(await made if inspect.isawaitable(made) else made)
            except Exception as error:
                if not dead_letters or not transaction.is_poison(error):
                    raise
                transaction.dead_letter(record, error)
                continue
            for output in outputs:
                transaction.send(*output)

    return process
