"""Handle CreateDelegationToken v1-3: create a token for the client itself, or for another owner (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import Final

from ...auth.principal import Principal
from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ..api.delegation_token_requests import NO_TIMESTAMP, check_connection, enabled_manager
from ..api.handling import RequestContext, handles
from ..metadata.delegation_tokens import DelegationTokenManager
from ..security.delegation_token import DelegationToken

MAX_NAMES_BYTES: Final = 4096
"""The maximum total bytes of a token's owner and renewer names. All tokens are in memory. Kafka has no such limit."""

MAX_RENEWERS: Final = 1000
"""The maximum number of renewers of a token, because all tokens are in memory."""


@handles(CreateDelegationTokenRequest, carried_out=True)
async def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester = owner = context.connection.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(0, owner.kind, owner.name)
    if context.api_version >= 3:
        response.token_requester_principal_type = requester.kind
        response.token_requester_principal_name = requester.name
    try:
        manager, token = await _created(context, request, owner)
    except KafkaError as error:
        response.error_code = int(error.code)
        # In Kafka, the controller sends this error, with times of 0, and brokers send the others, with times of -1.
        timestamp = 0 if error.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else NO_TIMESTAMP
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = timestamp
        return response
    response.issue_timestamp_ms = token.issue_timestamp
    response.expiry_timestamp_ms = token.expiry_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.token_id, response.hmac = token.token_id, manager.hmac(token.token_id)
    return response


async def _created(
    context: RequestContext, request: CreateDelegationTokenRequest, owner: Principal
) -> tuple[DelegationTokenManager, DelegationToken]:
    """Create a token; return it with the manager. Raises KafkaError if the token cannot be created."""
    check_connection(context)
    requester = context.connection.principal
    if owner != requester and not context.access.allows(AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if len(request.renewers) > MAX_RENEWERS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.renewers)} renewers are more than the {MAX_RENEWERS} that a token may have. Name fewer"
            " renewers.",
        )
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    # A login always has a principal of the type User. Kafka checks the type of renewers, but not of the owner: a token
    # of an owner with another type logs in as the user of the same name.
    if any(each.kind != "User" for each in (owner, *renewers)):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if sum(len(each.name.encode()) for each in (owner, *renewers)) > MAX_NAMES_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The names of owner and renewers have more than {MAX_NAMES_BYTES} bytes in total. Name fewer renewers.",
        )
    manager = enabled_manager(context)
    return manager, await manager.create(owner, requester, renewers, request.max_lifetime_ms)
