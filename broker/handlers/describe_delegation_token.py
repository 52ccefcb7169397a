"""Handle DescribeDelegationToken v1-3: return the tokens that the client may see (KIP-48).

A client may see a token if it is the token's owner, its requester or one of its renewers, or if it has permission to
describe the token.

As in Kafka, the response contains the secrets of all returned tokens. A client with permission to describe a user's
tokens (KIP-373) can therefore log in as that user while such a token exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...auth.principal import Principal
from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ..acls.access import Access
from ..api.delegation_token_requests import check_connection, enabled_manager
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps
from ..security.delegation_token import DelegationToken

_UNITS: Final = 5
"""The cost of examining a token, in units of work, without the cost of access control."""


@handles(DescribeDelegationTokenRequest)
def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> Steps[DescribeDelegationTokenResponse]:
    check_connection(context)
    manager = enabled_manager(context)
    owners = None if request.owners is None else (yield from _principals(request.owners))
    client = {context.connection.principal}
    access = context.access
    response = DescribeDelegationTokenResponse()
    for token in list(context.broker.metadata.delegation_tokens.values()):
        if owners is None or token.concerns_any(owners):
            if token.concerns_any(client) or _may_describe(access, token):
                yield context.rows(1 + len(token.renewers))
                response.tokens.append(_described(token, manager.hmac(token.token_id), context.api_version))
            yield 2 * access.units
        yield _UNITS
    return response


def _principals(owners: Iterable[DescribeDelegationTokenOwner]) -> Steps[set[Principal]]:
    principals: set[Principal] = set()
    for owner in owners:
        principals.add(Principal(owner.principal_type, owner.principal_name))
        yield 1
    return principals


def _may_describe(access: Access, token: DelegationToken) -> bool:
    return access.allows(
        AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, quiet=True
    ) or access.allows(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner), quiet=True)


def _described(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        token.owner.kind,
        token.owner.name,
        *((token.requester.kind, token.requester.name) if version >= 3 else ("", "")),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
        token.token_id,
        hmac,
        [DescribedDelegationTokenRenewer(each.kind, each.name) for each in token.renewers],
    )
