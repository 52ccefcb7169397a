"""Define `Access`: what one client may do. Handlers get it from `RequestContext.access`."""

from __future__ import annotations

from typing import Final, Protocol

from ...auth.principal import Principal
from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.apis import api_name
from ...protocol.errors import ErrorCode, KafkaError
from ..observability.audit import AuditLog
from ..scheduling.steps import Steps
from ..security.client_host import spelled_as_in_kafka
from .acl import CLUSTER_NAME
from .authorizer import OPERATIONS, Authorizer, Decision

CODES: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code for a refused operation, by resource type."""

RECORD_UNITS: Final = 10
"""The cost of a line in the audit log, in units of work (`steps.py`)."""


class Access(Protocol):
    """What one client may do. The cluster is a resource, too. Its name is `CLUSTER_NAME`."""

    @property
    def is_limited(self) -> bool:
        """Whether there is access control. If there is none, the client may do everything."""

    @property
    def units(self) -> int:
        """The cost of one call to `allows`, in units of work (`steps.py`)."""

    def allows(
        self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME, *, quiet: bool = False
    ) -> bool:
        """Return whether the client may execute the operation. The audit log omits a denial if `quiet` is true."""

    def allows_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        """Return, in steps, whether the client may execute the operation on some possible resource (KIP-679)."""

    def require(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise KafkaError with the resource type's error code unless the client may execute the operation."""

    def operations(self, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may execute on the resource, as a bit field (KIP-430)."""


class _FullAccess:
    """The access of every client of a broker without access control."""

    is_limited = False
    units = 0

    def allows(
        self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME, *, quiet: bool = False
    ) -> bool:
        return True

    def allows_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        yield 0
        return True

    def require(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> None: ...

    def operations(self, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        return sum(1 << operation for operation in OPERATIONS[resource_type])


FULL_ACCESS: Final[Access] = _FullAccess()


class _ClientAccess:
    """The access of one client according to the ACLs."""

    __slots__ = ("_api_key", "_audit", "_authorizer", "_host", "_principal")

    is_limited = True

    def __init__(self, authorizer: Authorizer, principal: str, host: str, api_key: int, audit: AuditLog) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._api_key = api_key
        self._audit = audit

    def allows(
        self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME, *, quiet: bool = False
    ) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, operation, resource_type, name)
        if not decision.allowed and not quiet:
            self._report(decision, operation, resource_type, name)
        return decision.allowed

    @property
    def units(self) -> int:
        return self._authorizer.units

    def allows_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        asked = self._principal, self._host, operation, resource_type
        decision = yield from self._authorizer.decide_by_resource_type(*asked)
        if not decision.allowed:
            self._report(decision, operation, resource_type, "any")
        return decision.allowed

    def require(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> None:
        if not self.allows(operation, resource_type, name):
            raise KafkaError(CODES[resource_type])

    def operations(self, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        return self._authorizer.operations(self._principal, self._host, resource_type, name)

    def _report(self, decision: Decision, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        self._audit.operation(
            decision.allowed,
            self._principal,
            self._host,
            api_name(self._api_key),
            operation.name,
            resource_type.name,
            name,
            str(decision.rule),
        )


class _AuditedAccess(_ClientAccess):
    """The access of one client. The audit log records allowed operations as well as denied ones."""

    __slots__ = ()

    def allows(
        self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME, *, quiet: bool = False
    ) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, operation, resource_type, name)
        if decision.allowed or not quiet:
            self._report(decision, operation, resource_type, name)
        return decision.allowed

    @property
    def units(self) -> int:
        return self._authorizer.units + RECORD_UNITS

    def allows_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        asked = self._principal, self._host, operation, resource_type
        decision = yield from self._authorizer.decide_by_resource_type(*asked)
        self._report(decision, operation, resource_type, "any")
        return decision.allowed


class AccessControl:
    """Gives each client its access. A broker without access control has no such object."""

    def __init__(self, authorizer: Authorizer, audit: AuditLog) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._access = _AuditedAccess if audit.records_allowed else _ClientAccess

    def of(self, principal: Principal, host: str, api_key: int) -> Access:
        """Return the access of a client's request; `host` is the client's address."""
        return self._access(self._authorizer, str(principal), spelled_as_in_kafka(host), api_key, self._audit)

    def allows_uncovered(self, principal: Principal, host: str, api_key: int) -> bool:
        """Return whether the client may use an API without known requirements. Only `super.users` may."""
        allowed = str(principal) in self._authorizer.super_users
        rule = "super.users" if allowed else "no requirements are known for the API"
        self._audit.operation(
            allowed, str(principal), host, api_name(api_key), "ALL", AclResourceType.CLUSTER.name, CLUSTER_NAME, rule
        )
        return allowed
