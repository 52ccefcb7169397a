"""Define the checks that CreateAcls, DescribeAcls and DeleteAcls share."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from .handling import RequestContext
from .services import BrokerServices


def check_is_on(broker: BrokerServices) -> None:
    """Raise KafkaError SECURITY_DISABLED if the broker has no access control."""
    if broker.access_control is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "This broker has no access control. Set authorizer.class.name=StandardAuthorizer to turn it on.",
        )


def close_if_unknown(context: RequestContext, *numbers: int) -> bool:
    """Close the connection, as Kafka does, if one of `numbers` is 0 (UNKNOWN). Return whether one of them is."""
    if 0 not in numbers:
        return False
    context.connection.close("a request about ACLs has an element of the type UNKNOWN")
    return True
