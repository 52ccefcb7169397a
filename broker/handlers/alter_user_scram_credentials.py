"""Handle AlterUserScramCredentials: set and remove the SCRAM credentials of users (KIP-554).

As in Kafka, either all changes to a user are made or none. If a user has a change that cannot be made, the other users
are still changed.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from ...auth.mechanism_names import SCRAM_NAMES
from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ..api.handling import RequestContext, handles
from ..scheduling.slices import in_slices
from ..scheduling.steps import Steps, run_in_slices

if TYPE_CHECKING:
    from ...auth.scram_credentials import ScramCredential

CHANGED_AT_A_TIME: Final = 20
"""The number of users whose credentials are changed and made durable together."""

REFUSED_AT_A_TIME: Final = 100

Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

MAX_NAME_BYTES: Final = 1000
MAX_PART_BYTES: Final = 1000
"""The maximum size in bytes of a salt and of a salted password, because the latter is hashed on the event loop."""


@handles(AlterUserScramCredentialsRequest, carried_out=True)
async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes = await run_in_slices(_by_user(request))
    users = list(changes)
    response = AlterUserScramCredentialsResponse()
    if not context.access.allows(AclOperation.ALTER, AclResourceType.CLUSTER):
        refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        async for user in in_slices(users, REFUSED_AT_A_TIME):
            response.results.append(AlterUserScramCredentialsResult(user, int(refusal.code), refusal.message))
        return response
    async for start in in_slices(range(0, len(users), CHANGED_AT_A_TIME), 5):
        pending: list[tuple[AlterUserScramCredentialsResult, asyncio.Future[None]]] = []
        for user in users[start : start + CHANGED_AT_A_TIME]:
            result = AlterUserScramCredentialsResult(user)
            response.results.append(result)
            try:
                _check_mechanisms(changes[user])
                made = dict(_change(context, change) for change in changes[user])
                pending.append((result, context.broker.metadata.change_scram_credentials(user, made)))
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
        for result, change_made in pending:
            try:
                await change_made
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
    return response


def _by_user(request: AlterUserScramCredentialsRequest) -> Steps[dict[str, list[Change]]]:
    changes: dict[str, list[Change]] = {}
    for change in chain[Change](request.deletions, request.upsertions):
        changes.setdefault(change.name, []).append(change)
        yield 1
    return changes


def _check_mechanisms(changes: list[Change]) -> None:
    """Raise KafkaError DUPLICATE_RESOURCE if two changes of one user concern the same credential."""
    # The mechanism is an 8-bit number, so among more than 256 changes at least two concern the same mechanism.
    if len(changes) > 256 or len({change.mechanism for change in changes}) < len(changes):
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request. Send one change of it.",
        )


def _change(context: RequestContext, change: Change) -> tuple[str, ScramCredential | None]:
    """Return the mechanism and its new credential (None: remove it). Raises KafkaError if the change is impossible."""
    from ...auth.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS, ScramCredential

    users, user = context.broker.metadata.scram_users, change.name
    if not user or len(user.encode()) > MAX_NAME_BYTES:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The user name must have 1 to {MAX_NAME_BYTES} bytes. Use another name."
        )
    name = SCRAM_NAMES.get(change.mechanism)
    if name is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"{change.mechanism} is not the number of a SCRAM mechanism. Use 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.",
        )
    if isinstance(change, ScramCredentialDeletion):
        if name not in users.get(user, {}):
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"The user has no {name} credential, so it cannot be removed."
            )
        return name, None
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        few = change.iterations < MIN_ITERATIONS
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Too {'few' if few else 'many'} iterations. Use {MIN_ITERATIONS} to {MAX_ITERATIONS}.",
        )
    if not (0 < len(change.salt) <= MAX_PART_BYTES and 0 < len(change.salted_password) <= MAX_PART_BYTES):
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salt and the salted password must have 1 to {MAX_PART_BYTES} bytes each.",
        )
    limit = context.broker.config.scram_max_users
    if not context.broker.metadata.has_room_for_user(user, limit):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster already has {limit} users, the limit set by scram.max.users. Remove users, or raise the"
            " limit.",
        )
    return name, ScramCredential.of_salted_password(
        SCRAM_MECHANISMS[name], bytes(change.salted_password), salt=bytes(change.salt), iterations=change.iterations
    )
