"""Handle DeleteAcls v1-3: delete the access rules that match filters, and answer when the deletion is in effect.

A rule that matches several filters is in the result of each filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...protocol.errors import KafkaError
from ...protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ..acls.acl import Acl, AclFilter
from ..api.acl_requests import check_is_on, close_if_unknown
from ..api.handling import RequestContext, handles
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices

COMPARED_AT_A_TIME: Final = 100
"""The number of rules that are compared with a filter in one step."""

DELETED_AT_A_TIME: Final = 50
"""The number of rules whose deletion is written to the log together."""


@handles(DeleteAclsRequest, carried_out=True)
async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse | None:
    check_is_on(context.broker)
    if not await run_in_slices(_checked(context, request.filters)):
        return None
    doomed: dict[Acl, list[DeleteAclsMatchingAcl]] = {}
    response = DeleteAclsResponse()
    await run_in_slices(_match(context, request.filters, response, doomed))
    if context.connection.closed.done():
        return None  # nothing has been deleted yet, and no client waits for the response
    acls = list(doomed)
    pending: list[tuple[list[Acl], Any]] = []
    async for start in in_slices(range(0, len(acls), DELETED_AT_A_TIME), 1):
        portion = acls[start : start + DELETED_AT_A_TIME]
        try:
            pending.append((portion, context.broker.metadata.delete_acls(portion)))
        except KafkaError as error:
            _fail(doomed, portion, error)
    for portion, deletion in pending:
        try:
            await deletion
        except KafkaError as error:
            _fail(doomed, portion, error)
    return response


def _checked(context: RequestContext, filters: Sequence[DeleteAclsFilter]) -> Steps[bool]:
    """Return whether all filters are valid; close the connection at the first one that is not."""
    for item in filters:
        numbers = item.resource_type_filter, item.pattern_type_filter, item.operation, item.permission_type
        if close_if_unknown(context, *numbers):
            return False
        yield 1
    return True


def _match(
    context: RequestContext,
    filters: Sequence[DeleteAclsFilter],
    response: DeleteAclsResponse,
    doomed: dict[Acl, list[DeleteAclsMatchingAcl]],
) -> Steps[None]:
    """Add the result of each filter to the response, and the rows of each matching rule to `doomed`."""
    index = context.broker.metadata.acls
    for item in filters:
        result = DeleteAclsFilterResult(0, None)
        response.filter_results.append(result)
        wanted = AclFilter(
            item.resource_type_filter,
            item.pattern_type_filter,
            item.resource_name_filter,
            item.principal_filter,
            item.host_filter,
            item.operation,
            item.permission_type,
        )
        yield context.rows()
        candidates = yield from index.candidates(wanted)
        for start in range(0, len(candidates), COMPARED_AT_A_TIME):
            if context.connection.closed.done():
                return
            for acl in candidates[start : start + COMPARED_AT_A_TIME]:
                if wanted.matches(acl):
                    context.rows()
                    row = _row(acl)
                    result.matching_acls.append(row)
                    doomed.setdefault(acl, []).append(row)
            yield COMPARED_AT_A_TIME


def _row(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        0,
        None,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _fail(doomed: dict[Acl, list[DeleteAclsMatchingAcl]], acls: Sequence[Acl], error: KafkaError) -> None:
    for acl in acls:
        for row in doomed[acl]:
            row.error_code, row.error_message = int(error.code), error.message
