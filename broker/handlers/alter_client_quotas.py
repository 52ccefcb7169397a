"""Handle AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546).

As in Kafka, either all changes of an entity are made or none. If an entity has a change that cannot be made, the other
entities are still changed. An entity that the request repeats is not changed. The response is sent when the quotas are
durable and in effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    RequestEntryData,
)
from ..api.handling import RequestContext, handles
from ..quotas.entity import QuotaEntity, QuotaValues, check_quota, quota_entity
from ..scheduling.slices import in_slices
from ..scheduling.steps import repeated, run_in_slices

CHANGED_AT_A_TIME: Final = 20
"""The number of entities whose quotas are changed and made durable together."""

MAX_CHANGES: Final = 20
"""The largest number of changes to one entity. There are five quotas."""


@handles(AlterClientQuotasRequest, carried_out=True)
async def handle(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    items = request.entries
    twice = await run_in_slices(repeated(_named(items)))
    async for start in in_slices(range(0, len(items), CHANGED_AT_A_TIME), 1):
        pending: list[tuple[EntryData, asyncio.Future[None]]] = []
        for item in items[start : start + CHANGED_AT_A_TIME]:
            context.rows()
            entry = EntryData(0, None, item.entity)
            response.entries.append(entry)
            try:
                entity, values = _changed(context, item)
                if entity in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The entity is in the request twice. Send it once.")
                if not request.validate_only:
                    pending.append((entry, context.broker.metadata.change_quotas(entity, values)))
            except KafkaError as error:
                _fail(entry, error)
        for entry, change in pending:
            try:
                await change
            except KafkaError as error:
                _fail(entry, error)
    return response


def _named(items: Iterable[RequestEntryData]) -> Iterator[QuotaEntity]:
    """Yield the entity of each item; items with an invalid entity are left out."""
    for item in items:
        with suppress(ValueError):
            yield quota_entity((part.entity_type, part.entity_name) for part in item.entity)


def _changed(context: RequestContext, item: RequestEntryData) -> tuple[QuotaEntity, QuotaValues]:
    """Return an entity and its quotas after the change. Raises KafkaError INVALID_REQUEST or POLICY_VIOLATION."""
    metadata = context.broker.metadata
    try:
        if len(item.ops) > MAX_CHANGES:
            raise ValueError(f"The entity has more than {MAX_CHANGES} changes. Send each quota once")
        entity = quota_entity((part.entity_type, part.entity_name) for part in item.entity)
        values = dict(metadata.newest_quotas(entity))
        if len({change.key for change in item.ops}) < len(item.ops):
            raise ValueError("A quota of the entity is changed twice. Change it once")
        for change in item.ops:
            check_quota(entity, change.key, None if change.remove else change.value)
            values.pop(change.key, None)
            if not change.remove:
                values[change.key] = change.value
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}.") from None
    limit = context.broker.config.max_client_quotas
    if values and not metadata.has_room_for_quotas(entity, limit):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{limit} entities have quotas already (max.client.quotas = {limit}). Remove quotas, or raise the limit.",
        )
    return entity, values


def _fail(entry: EntryData, error: KafkaError) -> None:
    entry.error_code, entry.error_message = int(error.code), error.message
