"""Decide whether a client may execute an operation, by the rules of Kafka's StandardAuthorizer.

The first of these rules that applies decides:

1. A principal of `super.users` may do everything.
2. A matching DENY rule denies.
3. A matching ALLOW rule allows. READ, WRITE, DELETE and ALTER also allow DESCRIBE, and ALTER_CONFIGS also allows
   DESCRIBE_CONFIGS. A DENY rule denies only its own operation.
4. If no rule of any principal matches the resource, `allow.everyone.if.no.acl.found` decides.
5. Otherwise the operation is denied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from itertools import chain
from typing import Final, NamedTuple

from ...protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission
from ..scheduling.steps import Steps, ordered
from .acl import CLUSTER_NAME, EVERY_USER, WILDCARD, Acl
from .acl_index import AclIndex

REMEMBERED: Final = 10_000
"""The maximum number of decisions of each kind that are remembered until the rules change."""

_RULES_PER_STEP: Final = 100

LONGEST_NAME: Final = 249
"""The longest name of a resource, in characters, for which decisions are remembered. Topic names are not longer."""

_O = AclOperation
_IMPLIED_BY: Final[dict[AclOperation, frozenset[AclOperation]]] = {
    _O.DESCRIBE: frozenset({_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.ALTER_CONFIGS}),
}
_ALLOWING: Final = {
    operation: frozenset({operation, AclOperation.ALL}) | _IMPLIED_BY.get(operation, frozenset())
    for operation in AclOperation
}
"""For each operation, the operations whose ALLOW rules allow this operation, too."""

OPERATIONS: Final = {
    AclResourceType.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    AclResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        _O.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
    AclResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
    AclResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
}
"""The operations that requests can require on each type of resource. `authorized_operations` reports them (KIP-430)."""


class Decision(NamedTuple):
    """Whether an operation is allowed, and the `rule` that decided: an ACL or, if no ACL decided, the reason in words.

    `str(rule)` is text for an audit log.
    """

    allowed: bool
    rule: Acl | str


_SUPER_USER: Final = Decision(True, "super.users")
_NO_ACL_ALLOWED: Final = Decision(True, "allow.everyone.if.no.acl.found")
_NO_ACL_DENIED: Final = Decision(False, "no ACL for the resource")
_NO_MATCH: Final = Decision(False, "no ACL that allows it")


class Authorizer:
    """Decides what clients may do, from the rules in `acls`. Decisions are remembered until the rules change."""

    def __init__(
        self, acls: AclIndex, super_users: Collection[str] = (), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self.acls = acls
        self.super_users = frozenset(super_users)
        self._without_acl = _NO_ACL_ALLOWED if allow_everyone_if_no_acl_found else _NO_ACL_DENIED
        self._decisions: dict[tuple[str, str, int, int, str], Decision] = {}
        self._version = acls.version
        self._decisions_by_type: dict[tuple[str, str, AclOperation, AclResourceType], Decision] = {}
        self._version_by_type = acls.version

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        """Return the decision about one operation on the resource `name`. `host` is the client's address."""
        if self._version != self.acls.version or len(self._decisions) >= REMEMBERED:
            self._decisions.clear()
            self._version = self.acls.version
        key = principal, host, operation, resource_type, name
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(*key)
            if len(name) <= LONGEST_NAME:
                self._decisions[key] = decision
        return decision

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        if principal in self.super_users:
            return _SUPER_USER
        allowing = _ALLOWING[operation]
        allow: Acl | None = None
        concerns = False
        clients = dict.fromkeys(((principal, host), (principal, WILDCARD), (EVERY_USER, host), (EVERY_USER, WILDCARD)))
        for rules in self.acls.matching(resource_type, name):
            concerns = True
            for client in clients:
                for acl in rules.get(client, ()):
                    if acl.permission == Permission.ALLOW:
                        if allow is None and acl.operation in allowing:
                            allow = acl
                    elif acl.operation in (operation, AclOperation.ALL):
                        return Decision(False, acl)
        if allow is not None:
            return Decision(True, allow)
        return _NO_MATCH if concerns else self._without_acl

    @property
    def units(self) -> int:
        """The cost of an uncached decision, in units of work (`steps.py`). It grows with the prefix lengths in use."""
        return 2 + self.acls.units

    def decide_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> Steps[Decision]:
        """Return, in steps, whether the operation is allowed on at least one possible resource of a type (KIP-679).

        It is allowed if an ALLOW rule for exactly this operation, or for ALL, is not dominated by a DENY rule. A DENY
        rule dominates an ALLOW rule if it applies to every resource, to the ALLOW rule's literal name, or to a prefix
        of the ALLOW rule's name.
        """
        # As in Kafka, the name "hardcode" stands for a resource that no rule names. In this way, super users and
        # allow.everyone.if.no.acl.found have their effect.
        decision = self.decide(principal, host, operation, resource_type, "hardcode")
        if decision.allowed:
            return decision
        version = self.acls.version
        if self._version_by_type != version or len(self._decisions_by_type) >= REMEMBERED:
            self._decisions_by_type.clear()
            self._version_by_type = version
        key = principal, host, operation, resource_type
        known = self._decisions_by_type.get(key)
        if known is None:
            known = yield from self._decide_by_resource_type(*key)
            if self.acls.version == self._version_by_type == version:
                self._decisions_by_type[key] = known
        return known

    def _decide_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> Steps[Decision]:
        """Decide by the rules as they are when the first step runs.

        The prefixes of DENY rules are sorted, and one binary search per ALLOW rule finds the only prefix that can
        dominate the rule. Comparing each ALLOW rule with each DENY rule would take too long.
        """
        owned = [list(self.acls.of_principal(resource_type, name)) for name in dict.fromkeys((principal, EVERY_USER))]
        allows: list[Acl] = []
        names: set[str] = set()
        prefixes: list[str] = []
        for count, acl in enumerate(chain(*owned), 1):
            if count % _RULES_PER_STEP == 0:
                yield _RULES_PER_STEP // 4
            if acl.operation not in (operation, AclOperation.ALL) or acl.host not in (WILDCARD, host):
                continue
            if acl.permission == Permission.ALLOW:
                allows.append(acl)
            elif acl.pattern_type == PatternType.PREFIXED:
                prefixes.append(acl.resource_name)
            elif acl.resource_name == WILDCARD:
                return Decision(False, acl)
            else:
                names.add(acl.resource_name)
        shortest = yield from _shortest(prefixes)
        for count, acl in enumerate(allows, 1):
            if count % _RULES_PER_STEP == 0:
                yield _RULES_PER_STEP
            name = acl.resource_name
            is_literal = acl.pattern_type == PatternType.LITERAL
            if is_literal and name == WILDCARD:
                return Decision(True, acl)
            place = bisect_right(shortest, name)
            if not ((is_literal and name in names) or (place and name.startswith(shortest[place - 1]))):
                return Decision(True, acl)
        return _NO_MATCH

    def operations(self, principal: str, host: str, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that are allowed on a resource, as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.decide(principal, host, operation, resource_type, name).allowed
        )


def _shortest(prefixes: list[str]) -> Steps[list[str]]:
    """Return, sorted, the prefixes that do not begin with another of the `prefixes`.

    A name can begin with at most one of the returned prefixes: the last one that does not sort after the name.
    """
    shortest: list[str] = []
    for prefix in (yield from ordered(prefixes)):
        if not (shortest and prefix.startswith(shortest[-1])):
            shortest.append(prefix)
        yield 2
    return shortest
