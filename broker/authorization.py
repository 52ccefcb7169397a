"""Authorize requests. This release allows all requests of all clients; this module defines the hook and the operations.

An authorizer is called with each request before the request's handler. To refuse the request, it raises KafkaError with
one of the *_AUTHORIZATION_FAILED codes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from .handling import HandledApi, RequestContext

Authorizer = Callable[[RequestContext, HandledApi], None]


def allow_all(context: RequestContext, api: HandledApi) -> None:
    """Allow every request. This is the authorizer of a broker without access control."""


class AclOperation(IntEnum):
    """Kafka's operations. Bit n of a response's `authorized_operations` is set if operation n is allowed (KIP-430)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_O = AclOperation
TOPIC_OPERATIONS: Final = _bits(
    _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
)
CLUSTER_OPERATIONS: Final = _bits(
    _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE
)
GROUP_OPERATIONS: Final = _bits(_O.READ, _O.DELETE, _O.DESCRIBE)
NOT_ASKED: Final = -(2**31)
"""The value of `authorized_operations` in a response whose request did not ask for the operations."""
