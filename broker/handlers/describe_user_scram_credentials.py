"""Handle DescribeUserScramCredentials: list the mechanisms and iterations of users, never salts or keys (KIP-554)."""

from __future__ import annotations

from collections import Counter

from ...auth.mechanism_names import SCRAM_NUMBERS
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ..api.handling import RequestContext, handles
from ..scheduling.steps import Steps


@handles(DescribeUserScramCredentialsRequest)
def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    users = context.broker.metadata.scram_users
    counts: Counter[str] = Counter() if request.users else Counter(list(users))
    for user in request.users or ():
        counts[user.name] += 1
        yield 1
    response = DescribeUserScramCredentialsResponse()
    for name, count in counts.items():
        yield context.rows()
        result = DescribeUserScramCredentialsResult(name)
        response.results.append(result)
        if count > 1:
            result.error_code = int(ErrorCode.DUPLICATE_RESOURCE)
            result.error_message = "Cannot describe SCRAM credentials for the same user twice in a single request."
        elif name not in users:
            result.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
            result.error_message = "Attempt to describe a user credential that does not exist."
        else:
            result.credential_infos = [
                CredentialInfo(SCRAM_NUMBERS[mechanism], credential.iterations)
                for mechanism, credential in sorted(users[name].items())
            ]
    return response
