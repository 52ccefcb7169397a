"""Handle DeleteGroups v0-2: delete groups that have no members, together with their offsets (KIP-229)."""

from __future__ import annotations

import asyncio

from ...protocol.errors import KafkaError
from ...protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ..api.handling import Answer, Deferred, RequestContext, handles
from ..coordinator.state_log import units_of_hashing
from ..scheduling.steps import Steps


@handles(DeleteGroupsRequest, carried_out=True)
def handle(context: RequestContext, request: DeleteGroupsRequest) -> Steps[Answer]:
    """Delete the groups; send the response when the tombstones are durable."""
    coordinator = context.broker.group_coordinator
    results = []
    waiting: list[tuple[DeletableGroupResult, asyncio.Future[None]]] = []
    for group_id in request.groups_names:
        result = DeletableGroupResult(group_id)
        results.append(result)
        try:
            yield from coordinator.delete_group_in_steps(group_id)
            settled = coordinator.settled(group_id)
        except KafkaError as error:
            result.error_code = int(error.code)
        else:
            if settled is not None:
                waiting.append((result, settled))
        yield 5 * context.rows() + units_of_hashing(group_id)
    response = DeleteGroupsResponse(results=results)
    return Deferred(_when_settled(response, waiting)) if waiting else response


async def _when_settled(
    response: DeleteGroupsResponse, waiting: list[tuple[DeletableGroupResult, asyncio.Future[None]]]
) -> DeleteGroupsResponse:
    for result, settled in waiting:
        try:
            await settled
        except KafkaError as error:
            result.error_code = int(error.code)
    return response
