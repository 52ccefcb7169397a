"""Handle CreateAcls v1-3: add access rules, and answer when they are durable and in effect.

As in Kafka, the connection is closed if a rule has the type UNKNOWN, and the whole request fails if a rule has a type
that is for filters only, such as ANY.
"""

from __future__ import annotations

from typing import Any, Final

from ...auth.principal import Principal
from ...protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ..acls.acl import CLUSTER_NAME, Acl
from ..api.acl_requests import check_is_on, close_if_unknown
from ..api.handling import RequestContext, handles
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices

CREATED_AT_A_TIME: Final = 50
"""The number of rules that are written to the log together."""

MAX_CHARACTERS: Final = 1000
"""The maximum length of a rule's name, principal and host, because all rules are in memory. Kafka has no such limit."""

_ANY: Final = 1
"""The number that means ANY, which is the same for resources, patterns, operations and permissions."""

_LITERAL_OR_PREFIXED: Final = (PatternType.LITERAL, PatternType.PREFIXED)


@handles(CreateAclsRequest, carried_out=True)
async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse | None:
    check_is_on(context.broker)
    if not await run_in_slices(_checked(context, request)):
        return None
    metadata = context.broker.metadata
    response = CreateAclsResponse()
    pending: list[tuple[list[AclCreationResult], Any]] = []
    async for start in in_slices(range(0, len(request.creations), CREATED_AT_A_TIME), 1):
        acls: list[Acl] = []
        results: list[AclCreationResult] = []
        for item in request.creations[start : start + CREATED_AT_A_TIME]:
            context.rows()
            problem = _problem(item)
            if problem is None:
                result = AclCreationResult(0, None)
                acls.append(_acl(item))
                results.append(result)
            else:
                result = AclCreationResult(int(ErrorCode.INVALID_REQUEST), problem)
            response.results.append(result)
        if acls:
            try:
                pending.append((results, metadata.create_acls(acls)))
            except KafkaError as error:
                _fail(results, error)
    for results, creation in pending:
        try:
            await creation
        except KafkaError as error:
            _fail(results, error)
    return response


def _checked(context: RequestContext, request: CreateAclsRequest) -> Steps[bool]:
    """Raise KafkaError if a rule makes the whole request fail. Return False if the connection was closed."""
    acls = context.broker.metadata.acls
    new: set[Acl] = set()
    for item in request.creations:
        yield 2
        numbers = item.resource_type, item.resource_pattern_type, item.operation, item.permission_type
        if close_if_unknown(context, *numbers):
            return False
        if _ANY in numbers or item.resource_pattern_type == PatternType.MATCH:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "An ACL has the type ANY or MATCH, which are for filters only. Send a specific type.",
            )
        acl = _acl(item)
        if acl not in acls:
            new.add(acl)
    limit, existing = context.broker.config.max_acls, context.broker.metadata.acl_count
    if new and existing + len(new) > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(new)} new ACLs and the existing {existing} are more than max.acls = {limit}. Delete ACLs, or raise"
            " the limit.",
        )
    return True


def _acl(item: AclCreation) -> Acl:
    return Acl(
        item.resource_type,
        item.resource_pattern_type,
        item.resource_name,
        item.principal,
        item.host,
        item.operation,
        item.permission_type,
    )


def _problem(item: AclCreation) -> str | None:
    """Return what is wrong with a rule, or None if it is valid.

    As in Kafka, the host need not be an address, and the operation need not apply to the resource type.
    """
    if max(map(len, (item.resource_name, item.principal, item.host))) > MAX_CHARACTERS:
        return f"The resource name, the principal or the host has more than {MAX_CHARACTERS} characters. Shorten it."
    if item.resource_type == AclResourceType.CLUSTER and item.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}."
    if not item.resource_name:
        return "The resource name is empty. Send a name, or * for all resources."
    if item.resource_type not in list(AclResourceType):
        return f"Resource type {item.resource_type} does not exist."
    if item.resource_pattern_type not in _LITERAL_OR_PREFIXED:
        return f"Pattern type {item.resource_pattern_type} does not exist. Use 3 (literal) or 4 (prefixed)."
    if item.operation not in list(AclOperation):
        return f"Operation {item.operation} does not exist."
    if item.permission_type not in (Permission.ALLOW, Permission.DENY):
        return f"Permission type {item.permission_type} does not exist. Use 2 (deny) or 3 (allow)."
    try:
        Principal.parse(item.principal)
    except ValueError as error:
        return f"{error}."
    return None


def _fail(results: list[AclCreationResult], error: KafkaError) -> None:
    for result in results:
        result.error_code, result.error_message = int(error.code), error.message
