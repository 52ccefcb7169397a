"""Access rules (ACLs) and SCRAM credentials: what users may do, and how they log in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ...auth.mechanism_names import SCRAM_NAMES, SCRAM_NUMBERS
from ...protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ...protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from ...protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource
from ...protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from ..errors import KafkaError, error_for
from .calls import AdminCalls, failure, one_by_one, one_each, only, raised


def _by_name(numbers: Iterable[IntEnum]) -> dict[str, int]:
    return {number.name: number.value for number in numbers}


KINDS: Final = _by_name(kind for kind in AclResourceType if kind > AclResourceType.ANY)
PATTERNS: Final = _by_name((PatternType.LITERAL, PatternType.PREFIXED))
OPERATIONS: Final = _by_name(each for each in AclOperation if each > AclOperation.ANY)
PERMISSIONS: Final = _by_name((Permission.ALLOW, Permission.DENY))
_ANY: Final = 1
"""The number that means ANY in a filter. It is the same for kinds, patterns, operations and permissions."""

SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Acl:
    """An access rule. It allows a principal an operation on a resource or, with `permission="DENY"`, denies it.

    `kind` is TOPIC, GROUP, CLUSTER (its `name` is kafka-cluster), TRANSACTIONAL_ID, DELEGATION_TOKEN or USER. With
    `pattern="PREFIXED"` the rule applies to all resources whose names begin with `name`. The name `*`, the principal
    `User:*` and the host `*` match everything. Operations are Kafka's, such as READ, WRITE, CREATE, DESCRIBE and ALL.
    Raises ValueError for an unknown kind, pattern, operation or permission.
    """

    kind: str
    name: str
    principal: str
    operation: str
    permission: str = "ALLOW"
    host: str = "*"
    pattern: str = "LITERAL"

    def __post_init__(self) -> None:
        for value, known in zip(_words(self), _TABLES, strict=True):
            _number(value, known)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects access rules. A field that is None matches every value. Raises ValueError for an unknown kind, pattern,
    operation or permission.

    With `applies_to=True`, `name` is the name of a resource, and the filter selects all rules that apply to it,
    including rules for a prefix of `name` and for `*`.
    """

    kind: str | None = None
    name: str | None = None
    principal: str | None = None
    operation: str | None = None
    permission: str | None = None
    host: str | None = None
    pattern: str | None = None
    applies_to: bool = False

    def __post_init__(self) -> None:
        for value, known in zip(_words(self), _TABLES, strict=True):
            if value is not None:
                _number(value, known)


_TABLES: Final = (KINDS, PATTERNS, OPERATIONS, PERMISSIONS)


def _words(rule: Acl | AclFilter) -> tuple[str | None, ...]:
    return rule.kind, rule.pattern, rule.operation, rule.permission


class ScramUser(NamedTuple):
    """A user who can log in with SCRAM. `iterations` maps each mechanism to its number of hash iterations."""

    name: str
    iterations: Mapping[str, int]


def _number(word: str | None, table: Mapping[str, int]) -> int:
    if word is None:
        return _ANY
    if word not in table:
        raise ValueError(f"{word!r} is not one of {', '.join(table)}")
    return table[word]


def _word(number: int, table: Mapping[str, int]) -> str:
    return next((word for word, known in table.items() if known == number), str(number))


async def create_acls(calls: AdminCalls, acls: Sequence[Acl]) -> dict[Acl, KafkaError | None]:
    """Create access rules. Return the failure of each rule, or None if it was created. A rule that exists already
    counts as created.
    """
    request = CreateAclsRequest(
        [
            AclCreation(
                KINDS[acl.kind],
                acl.name,
                PATTERNS[acl.pattern],
                acl.principal,
                acl.host,
                OPERATIONS[acl.operation],
                PERMISSIONS[acl.permission],
            )
            for acl in acls
        ]
    )
    answer = await calls.simple(request, "create access rules")
    return {
        acl: failure(one.error_code, one.error_message, f"rule {astuple(acl)}")
        for acl, one in one_by_one(acls, answer.results, "access rules")
    }


async def list_acls(calls: AdminCalls, chosen: AclFilter) -> list[Acl]:
    """Return the selected access rules, sorted."""
    answer = await calls.simple(DescribeAclsRequest(*_filter(chosen)), "list access rules")
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message)
    found = [_acl(resource, rule) for resource in answer.resources for rule in resource.acls]
    return sorted(found, key=astuple)


async def delete_acls(calls: AdminCalls, filters: Sequence[AclFilter]) -> list[Acl]:
    """Delete each rule that at least one filter selects. Return these rules. Raises the first failure."""
    request = DeleteAclsRequest([DeleteAclsFilter(*_filter(chosen)) for chosen in filters])
    answer = await calls.simple(request, "delete access rules")
    deleted: dict[Acl, None] = {}
    for _, result in one_by_one(filters, answer.filter_results, "filters of access rules"):
        if result.error_code:
            raise error_for(result.error_code, result.error_message)
        for one in result.matching_acls:
            if one.error_code:
                raise error_for(one.error_code, one.error_message)
            deleted[_acl(one, one)] = None
    return sorted(deleted, key=astuple)


def _acl(resource: DescribeAclsResource | DeleteAclsMatchingAcl, rule: AclDescription | DeleteAclsMatchingAcl) -> Acl:
    """Return the rule in a response as an Acl."""
    return Acl(
        _word(resource.resource_type, KINDS),
        resource.resource_name,
        rule.principal,
        _word(rule.operation, OPERATIONS),
        _word(rule.permission_type, PERMISSIONS),
        rule.host,
        _word(resource.pattern_type, PATTERNS),
    )


def _filter(chosen: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    pattern = PatternType.MATCH if chosen.applies_to else _number(chosen.pattern, PATTERNS)
    return (
        _number(chosen.kind, KINDS),
        chosen.name,
        pattern,
        chosen.principal,
        chosen.host,
        _number(chosen.operation, OPERATIONS),
        _number(chosen.permission, PERMISSIONS),
    )


async def set_password(calls: AdminCalls, user: str, password: str, mechanism: str, iterations: int) -> None:
    """Set a user's password for logins with a SCRAM mechanism. The password itself is not sent."""
    from ...auth.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS  # slow to import

    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations {iterations} is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    number, salt = _number(mechanism, SCRAM_NUMBERS), secrets.token_bytes(SALT_BYTES)
    salted = await asyncio.to_thread(SCRAM_MECHANISMS[mechanism].salted_password, password, salt, iterations)
    change = ScramCredentialUpsertion(user, number, iterations, salt, salted)
    await _alter(calls, AlterUserScramCredentialsRequest([], [change]), user, "set the password")


async def delete_password(calls: AdminCalls, user: str, mechanism: str) -> None:
    """Remove a user's password for a SCRAM mechanism."""
    deletion = ScramCredentialDeletion(user, _number(mechanism, SCRAM_NUMBERS))
    await _alter(calls, AlterUserScramCredentialsRequest([deletion], []), user, "delete the password")


async def _alter(calls: AdminCalls, request: AlterUserScramCredentialsRequest, user: str, what: str) -> None:
    answer = await calls.simple(request, f"{what} of {_user(user)}")
    result = only(user, ((one.user, one) for one in answer.results), _user)
    if result.error_code:
        raise error_for(result.error_code, result.error_message)


def _user(name: str) -> str:
    return f"user {name!r}"


async def scram_users(calls: AdminCalls, names: Iterable[str] | None) -> list[ScramUser]:
    """Return the users with SCRAM passwords, sorted by name. With `names`, return only those of the named users that
    exist.
    """
    wanted = None if names is None else list(dict.fromkeys(names))
    if wanted == []:
        return []
    request = DescribeUserScramCredentialsRequest(None if wanted is None else [UserName(name) for name in wanted])
    answer = await calls.simple(request, "list users")
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message)
    results: Iterable[DescribeUserScramCredentialsResult] = answer.results
    if wanted is not None:
        results = raised(one_each(wanted, ((one.user, one) for one in answer.results), _user)).values()
    users = []
    for result in results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            raise error_for(result.error_code, result.error_message)
        known = {SCRAM_NAMES.get(one.mechanism, str(one.mechanism)): one.iterations for one in result.credential_infos}
        users.append(ScramUser(result.user, known))
    return sorted(users)
