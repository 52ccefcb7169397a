"""Define an access rule, `Acl`, and a filter of rules, `AclFilter`, with the numbers of the Kafka protocol."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission

WILDCARD: Final = "*"
"""The wildcard. As the name in a literal pattern, it means every resource; as a host, it means every host."""

EVERY_USER: Final = "User:*"
"""The principal of a rule that applies to every client, regardless of the type of the client's principal."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class Acl(NamedTuple):
    """One rule: `principal` (`User:alice`) at `host` is allowed or denied `operation` on matching resources.

    The values of the enumerations are defined in `protocol/access_rules.py`.
    """

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        pattern = PatternType(self.pattern_type).name.lower()
        return (
            f"{Permission(self.permission).name} {self.principal} from {self.host}"
            f" {AclOperation(self.operation).name} on {AclResourceType(self.resource_type).name} {pattern}"
            f" {self.resource_name}"
        )


class AclFilter(NamedTuple):
    """A filter of rules. A field that is None, or that contains the number for ANY, matches everything.

    The pattern type MATCH matches the rules that apply to the resource `resource_name`.
    """

    resource_type: int = AclResourceType.ANY
    pattern_type: int = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter matches a rule."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        name, pattern_type = self.resource_name, self.pattern_type
        if pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return name.startswith(acl.resource_name)
