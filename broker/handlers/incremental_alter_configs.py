"""Handle IncrementalAlterConfigs: set, delete, append to or subtract from settings of topics and brokers (KIP-339).

The only possible change to a group is deleting `transaction.claims`, which removes the claims of its producers.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import IntEnum
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...settings import ConfigError, ConfigType, format_value
from ..api.config_changes import EditedConfigs, change_configs
from ..api.config_sources import ResourceType
from ..api.group_configs import check_deletions
from ..api.handling import RequestContext, handles
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, repeated, run_in_slices

CHANGED_AT_A_TIME = 20
"""The number of resources that are changed and made durable together."""


class Operation(IntEnum):
    """The operation on a setting; the numbers are those of the Kafka protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Edits(NamedTuple):
    """The operations on one resource: the names of the deleted settings, and all other operations.

    As in Kafka, a deleted name need not be a setting.
    """

    deletions: set[str]
    others: list[AlterableConfig]


@handles(IncrementalAlterConfigsRequest, carried_out=True)
async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    items = request.resources
    twice = await run_in_slices(repeated((item.resource_type, item.resource_name) for item in items))
    response = IncrementalAlterConfigsResponse()
    async for start in in_slices(range(0, len(items), CHANGED_AT_A_TIME), 1):
        pending: list[tuple[AlterConfigsResourceResponse, Awaitable[Any]]] = []
        for item in items[start : start + CHANGED_AT_A_TIME]:
            result = AlterConfigsResourceResponse(0, None, item.resource_type, item.resource_name)
            response.responses.append(result)
            try:
                if (item.resource_type, item.resource_name) in twice:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "The resource is in the request more than once. Send it once."
                    )
                edits = await run_in_slices(_edits(item))
                change = _change(context, item, edits, validate_only=request.validate_only)
                if change is not None:
                    pending.append((result, change))
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
        for result, change in pending:
            try:
                await change
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
    return response


def _change(
    context: RequestContext, item: AlterConfigsResource, edits: _Edits, *, validate_only: bool
) -> Awaitable[Any] | None:
    """Start the change. Return an awaitable that waits for its end, or None if there is nothing to wait for.

    If the function raises KafkaError, nothing has changed.
    """
    broker = context.broker
    if item.resource_type == ResourceType.GROUP and broker.group_aware:
        deletions = ((config.name, config.config_operation == Operation.DELETE) for config in item.configs)
        check_deletions(broker, item.resource_name, deletions)
        return None if validate_only or not item.configs else _unfence(context, item.resource_name)
    return change_configs(
        broker,
        item.resource_type,
        item.resource_name,
        lambda edited: _edit(edits, edited),
        validate_only=validate_only,
    )


async def _unfence(context: RequestContext, group_id: str) -> None:
    try:
        await context.broker.group_initialiser.unfence(group_id, context)
    except KafkaError as error:
        if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            raise
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "Producers of the group are being initialised. Try again."
        ) from None


def _edits(item: AlterConfigsResource) -> Steps[_Edits]:
    """Separate deletions from other operations. Raise KafkaError INVALID_REQUEST if a setting is changed twice."""
    names: set[str] = set()
    edits = _Edits(set(), [])
    for config in item.configs:
        if config.name in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config.name} is changed more than once. Change it once.")
        names.add(config.name)
        if config.config_operation == Operation.DELETE:
            edits.deletions.add(config.name)
        else:
            edits.others.append(config)
        yield 1
    return edits


def _edit(edits: _Edits, edited: EditedConfigs) -> None:
    """Apply the operations; raise KafkaError at the first invalid one.

    At most as many operations are applied as there are settings, because an unknown setting ends the loop and no
    setting is changed twice.
    """
    for name in list(edited.configs):
        if name in edits.deletions:
            del edited.configs[name]
    for config in edits.others:  # an unknown setting ends the loop, and no setting is changed twice
        _edit_one(config, edited)


def _edit_one(config: AlterableConfig, edited: EditedConfigs) -> None:
    name, value, configs = config.name, config.value, edited.configs
    setting = edited.find(name)
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The new value of {name} is null. Send a value.")
    if config.config_operation == Operation.SET:
        configs[name] = value
        return
    if config.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Operation {config.config_operation} on {name} is unknown. Use 0 to 3."
        )
    if setting.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list. It can only be set or deleted.")
    try:
        setting.check_item_count(value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{error}.") from None
    items = edited.items(name)
    operands = dict.fromkeys(part.strip() for part in value.split(",") if part.strip())
    if config.config_operation == Operation.APPEND:
        if not operands:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"The list of items to append to {name} is empty. Send at least one item."
            )
        items = list(dict.fromkeys([*items, *operands]))
    else:
        items = [part for part in items if part not in operands]
    configs[name] = format_value(items)
