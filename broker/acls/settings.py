"""Define the settings of access control, with Kafka's names."""

from __future__ import annotations

from typing import Final

from ...auth.principal import Principal
from ...settings import Table, at_least, boolean, integer, text

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _problem_of_authorizer(value: str) -> str | None:
    if value in ("", "oncelog", "StandardAuthorizer", STANDARD_AUTHORIZER):
        return None
    return "is not an authorizer of this broker. Use StandardAuthorizer, or leave the setting empty"


def _problem_of_super_users(value: str) -> str | None:
    for item in value.split(";"):
        try:
            if item.strip():
                Principal.parse(item.strip())
        except ValueError as error:
            return f"names a super user that is not a principal: {error}"
    return None


class AclSettings(Table):
    """The settings that decide which clients may do what."""

    authorizer_class_name: str = text(
        "",
        _problem_of_authorizer,
        doc="The access control. Empty: none, so every client may do everything. `StandardAuthorizer`, or Kafka's full"
        " name of this class: ACLs decide what clients may do.",
    )
    super_users: str = text(
        "",
        _problem_of_super_users,
        doc="The principals that may do everything, separated by semicolons, for example `User:alice;User:bob`. ACLs"
        " do not limit them.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, doc="Whether every client may use a resource for which there is no ACL at all."
    )
    max_acls: int = integer(
        100000,
        at_least(0),
        doc="The maximum number of ACLs. A request to create more fails with POLICY_VIOLATION.",
    )

    @property
    def super_user_principals(self) -> frozenset[str]:
        """The principals in `super.users`, in Kafka's form."""
        return frozenset(item.strip() for item in self.super_users.split(";") if item.strip())
