"""Who may do what. This release lets everyone do everything; the hook and the vocabulary are here.

An authorizer looks at a request before its handler does and raises KafkaError (*_AUTHORIZATION_FAILED) to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from .handling import HandledApi, RequestContext

Authorizer = Callable[[RequestContext, HandledApi], None]


def allow_all(context: RequestContext, api: HandledApi) -> None:
    """The authorizer of a broker without access control."""


class AclOperation(IntEnum):
    """Kafka's operations; an answer's `authorized_operations` has bit n set for each that is allowed (KIP-430)."""

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
"""What `authorized_operations` says when the request did not ask."""
