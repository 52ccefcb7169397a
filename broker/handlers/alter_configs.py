"""Handle AlterConfigs: replace all settings that override a topic's defaults or a broker's configuration.

IncrementalAlterConfigs supersedes this API, but clients still use it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ..api.config_changes import EditedConfigs, change_configs
from ..api.handling import RequestContext, handles
from ..scheduling.slices import in_slices
from ..scheduling.steps import repeated, run_in_slices

CHANGED_AT_A_TIME = 20
"""The number of resources that are changed and made durable together."""


@handles(AlterConfigsRequest, carried_out=True)
async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    items = request.resources
    twice = await run_in_slices(repeated((item.resource_type, item.resource_name) for item in items))
    response = AlterConfigsResponse()
    async for start in in_slices(range(0, len(items), CHANGED_AT_A_TIME), 1):
        pending: list[tuple[AlterConfigsResourceResponse, asyncio.Future[Any]]] = []
        for item in items[start : start + CHANGED_AT_A_TIME]:
            result = AlterConfigsResourceResponse(0, None, item.resource_type, item.resource_name)
            response.responses.append(result)
            try:
                if (item.resource_type, item.resource_name) in twice:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "The resource is in the request more than once. Send it once."
                    )
                change = change_configs(
                    context.broker,
                    item.resource_type,
                    item.resource_name,
                    lambda edited, item=item: _replace(item, edited),  # type: ignore[misc]
                    validate_only=request.validate_only,
                )
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


def _replace(item: AlterConfigsResource, edited: EditedConfigs) -> None:
    configs = edited.configs
    configs.clear()
    for config in item.configs:
        edited.find(config.name)
        if config.name in configs:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config.name} is set more than once. Set it once.")
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The value of {config.name} is null. Send a value or omit it.")
        configs[config.name] = config.value
