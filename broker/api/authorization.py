"""Enforce the requirements of APIs (`requirements.py`) before their handlers run.

If the broker has access control, the dispatcher runs each handler through `guarded`. Otherwise it runs the handlers
directly, so that access control costs nothing where it is off.

A requirement applies either to the whole request or to the items of an array. If it applies to the whole request and
the client lacks the permission, the request fails. If it applies to items, the handler gets a copy of the request with
only the allowed items. The errors of the other items are added to the response. If no item is allowed, the handler runs
only if its response has an error code for the whole request, as in OffsetDelete. If the handler raises an error, all
allowed items get that error.
"""

from __future__ import annotations

import copy
from collections.abc import Coroutine
from dataclasses import replace
from types import GeneratorType
from typing import Any, Final

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.apis import api_name
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import Request, Response
from ..acls.access import CODES, Access
from ..acls.acl import CLUSTER_NAME
from ..scheduling.steps import Steps
from .error_response import add_errors, error_response
from .handling import Deferred, HandledApi, Handler, Reply, RequestContext
from .requirements import CONFIG_RESOURCES, REQUIREMENTS, Requirement, Scope

NOT_ASKED: Final = -(2**31)
"""The value of `authorized_operations` in a response whose request did not ask for the operations."""

_UNITS_PER_STEP: Final = 200


def cluster_operations(access: Access) -> int:
    """Return the allowed operations on the cluster as a bit field; 0 if the client may not describe the cluster."""
    if not access.allows(AclOperation.DESCRIBE, AclResourceType.CLUSTER, quiet=True):
        return 0
    return access.operations(AclResourceType.CLUSTER)


def guarded(api: HandledApi) -> HandledApi:
    """Return the API with a handler that receives only the requests and items that the client is allowed to send."""
    rows = REQUIREMENTS.get(api_name(api.key))
    if rows is None:
        return replace(api, handle=_for_super_users(api.handle))
    return replace(api, handle=_guard(api.handle, rows))


def _for_super_users(handle: Handler) -> Handler:
    def guard(context: RequestContext, request: Request[Any]) -> Reply:
        control = context.broker.access_control
        client = context.connection
        if control is not None and not control.allows_uncovered(client.principal, client.peer_host, context.api_key):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "Only super users may use this API, because no access rule can allow it.",
            )
        return handle(context, request)

    return guard


def _guard(handle: Handler, rows: tuple[Requirement, ...]) -> Handler:
    of_request = [row for row in rows if row.scope is Scope.REQUEST]
    of_items = [row for row in rows if row.scope is Scope.ITEM]
    assert len(of_items) <= 1, rows

    def guard(context: RequestContext, request: Request[Any]) -> Reply:
        version = context.api_version
        for row in of_request:
            if version in row.versions:
                _check(context.access, row, request)
        for row in of_items:
            if version in row.versions and getattr(request, row.array):
                return _handled_in_part(context, request, handle, row)
        return handle(context, request)

    return guard


def _check(access: Access, row: Requirement, request: Request[Any]) -> None:
    name = getattr(request, row.field) if row.field else CLUSTER_NAME
    if name is not None and not _suffices_on_cluster(access, row):
        access.require(row.operation, row.resource_type, name)


def _suffices_on_cluster(access: Access, row: Requirement) -> bool:
    return row.or_cluster is not None and access.allows(row.or_cluster, AclResourceType.CLUSTER, quiet=True)


def _resource(row: Requirement, item: Any) -> tuple[AclResourceType, str]:
    name: str = getattr(item, row.field) if row.field else item
    if not row.kind_of_config:
        return row.resource_type, name
    resource_type = CONFIG_RESOURCES.get(item.resource_type)
    return (AclResourceType.CLUSTER, CLUSTER_NAME) if resource_type is None else (resource_type, name)


def _handled_in_part(context: RequestContext, request: Request[Any], handle: Handler, row: Requirement) -> Steps[Reply]:
    """Let the handler execute the request for the allowed items. Add the errors of the other items to its response."""
    access = context.access
    items: list[Any] = getattr(request, row.array)
    allowed: list[Any] = []
    denied: dict[ErrorCode, list[Any]] = {}
    if _suffices_on_cluster(access, row):
        allowed = items
    else:
        units = 2 + access.units
        at_once = max(1, _UNITS_PER_STEP // units)
        for start in range(0, len(items), at_once):
            portion = items[start : start + at_once]
            for item in portion:
                resource_type, name = _resource(row, item)
                if access.allows(row.operation, resource_type, name):
                    allowed.append(item)
                else:
                    denied.setdefault(CODES[resource_type], []).append(item)
            yield units * len(portion)
    if not denied:
        reply = handle(context, request)
        return (yield from reply) if isinstance(reply, GeneratorType) else reply
    refused = [(code, _with(request, row, items)) for code, items in denied.items()]
    part = _Part(context, _with(request, row, allowed), refused)
    if not allowed and not _has_own_code(request.response):
        return (yield from part.completed(request.response()))
    try:
        reply = handle(context, part.request)
    except KafkaError as error:
        return (yield from part.failed(error))
    reply = part.followed(reply)
    return (yield from reply) if isinstance(reply, GeneratorType) else reply


def _has_own_code(response: type[Response]) -> bool:
    """Return whether a response has an error code for the whole request, which only the handler can set."""
    return any(spec.name == "error_code" for spec in response.fields)


def _with(request: Request[Any], row: Requirement, items: list[Any]) -> Request[Any]:
    changed = copy.copy(request)
    setattr(changed, row.array, items)
    return changed


class _Part:
    """The allowed part of a request, and its refused parts with their error codes for the response."""

    def __init__(
        self, context: RequestContext, request: Request[Any], refused: list[tuple[ErrorCode, Request[Any]]]
    ) -> None:
        self.context = context
        self.request = request
        self.refused = refused

    def completed(self, response: Response) -> Steps[Response]:
        """Add the errors of the refused items to the response for the allowed items."""
        if getattr(response, "error_code", 0):
            return response  # the whole request failed, and its items have no codes of their own
        for code, part in self.refused:
            for units in add_errors(part, response, self.context.api_version, int(code), None):
                self.context.rows()
                yield units
        return response

    def failed(self, error: KafkaError) -> Steps[Response]:
        """Return the response of a request whose allowed part failed as a whole."""
        version = self.context.api_version
        response = yield from error_response(self.request, version, int(error.code), error.message)
        return (yield from self.completed(response))

    def followed(self, reply: Reply) -> Reply:
        """Return the handler's reply, with the errors of the refused items added to its response."""
        if isinstance(reply, Response):
            return self._unchanged(self.completed(reply))
        if isinstance(reply, Deferred):
            finish = reply.finish
            return Deferred(
                reply.awaitable,
                lambda result: self._finished(finish(result) if finish else result),
                hurry=reply.hurry,
            )
        if isinstance(reply, Coroutine):
            return self._awaited(reply)
        if isinstance(reply, GeneratorType):
            return self._stepped(reply)
        return reply

    def _finished(self, response: Any) -> Steps[Response | None]:
        if isinstance(response, GeneratorType):
            response = yield from response
        return None if response is None else (yield from self.completed(response))

    async def _awaited(self, reply: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            return self.followed(await reply)
        except KafkaError as error:
            return self._unchanged(self.failed(error))

    def _stepped(self, reply: Steps[Reply]) -> Steps[Reply]:
        try:
            made = yield from reply
        except KafkaError as error:
            return (yield from self.failed(error))
        made = self.followed(made)
        return (yield from made) if isinstance(made, GeneratorType) else made

    def _unchanged(self, steps: Steps[Response]) -> Steps[Reply]:
        return (yield from steps)
