"""The authorizer's decisions, as Kafka's StandardAuthorizer makes them."""

from __future__ import annotations

import pytest
from oncelog.broker.acls.acl import Acl, AclFilter
from oncelog.broker.acls.acl_index import AclIndex
from oncelog.broker.acls.authorizer import REMEMBERED, Authorizer
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission

Op, T = AclOperation, AclResourceType


def rule(
    name: str = "t",
    operation: AclOperation = Op.READ,
    permission: str = "ALLOW",
    *,
    type: AclResourceType = T.TOPIC,
    pattern: str = "LITERAL",
    principal: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(type, PatternType[pattern], name, principal, host, operation, Permission[permission])


def allowed(*acls: Acl, operation: AclOperation = Op.READ, name: str = "t", everyone: bool = False) -> bool:
    authorizer = Authorizer(AclIndex(acls), ["User:root"], allow_everyone_if_no_acl_found=everyone)
    return authorizer.decide("User:alice", "10.0.0.1", operation, T.TOPIC, name).allowed


def test_nothing_is_allowed_without_a_rule() -> None:
    assert not allowed()
    assert not allowed(rule("u"))
    assert allowed(rule("t"))
    assert not allowed(rule("t"), operation=Op.WRITE)


@pytest.mark.parametrize(("name", "matches"), [("t", True), ("*", True), ("t2", False), ("", False)])
def test_a_literal_name_is_one_resource_or_all(name: str, matches: bool) -> None:
    assert allowed(rule(name)) is matches


@pytest.mark.parametrize(("prefix", "matches"), [("ord", True), ("orders", True), ("orders2", False), ("*", False)])
def test_a_prefix_matches_the_names_that_begin_with_it(prefix: str, matches: bool) -> None:
    assert allowed(rule(prefix, pattern="PREFIXED"), name="orders") is matches


@pytest.mark.parametrize("principal", ["User:alice", "User:*"])
@pytest.mark.parametrize("host", ["10.0.0.1", "*"])
def test_a_rule_names_a_principal_and_a_host_or_all(principal: str, host: str) -> None:
    assert allowed(rule(principal=principal, host=host))
    assert not allowed(rule(principal="User:bob", host=host))
    assert not allowed(rule(principal=principal, host="10.0.0.2"))


def test_a_denial_beats_every_permission() -> None:
    every = rule("*", Op.ALL, principal="User:*")
    assert allowed(every)
    for denial in (
        rule(permission="DENY"),
        rule("*", Op.ALL, "DENY"),
        rule("t", Op.READ, "DENY", pattern="PREFIXED", principal="User:*"),
    ):
        assert not allowed(every, denial)
        assert not allowed(denial, every)
    assert allowed(every, rule(permission="DENY", host="10.0.0.2"))
    assert allowed(every, rule(permission="DENY", principal="User:bob"))
    assert allowed(every, rule(operation=Op.WRITE, permission="DENY"))


@pytest.mark.parametrize("operation", list(Op)[2:])
def test_some_operations_imply_describe(operation: AclOperation) -> None:
    implies = operation in (Op.ALL, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.DESCRIBE)
    assert allowed(rule(operation=operation), operation=Op.DESCRIBE) is implies
    implies = operation in (Op.ALL, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
    assert allowed(rule(operation=operation), operation=Op.DESCRIBE_CONFIGS) is implies


def test_a_denial_implies_nothing() -> None:
    every = rule(operation=Op.ALL)
    assert allowed(every, rule(operation=Op.READ, permission="DENY"), operation=Op.DESCRIBE)
    assert allowed(every, rule(operation=Op.DESCRIBE, permission="DENY"), operation=Op.READ)


def test_everyone_is_allowed_only_if_no_rule_concerns_the_resource() -> None:
    assert allowed(everyone=True)
    assert allowed(rule("u"), everyone=True)
    other = rule(principal="User:bob")
    assert not allowed(other, everyone=True)
    assert not allowed(rule("*", principal="User:bob"), everyone=True)
    assert not allowed(rule("t", pattern="PREFIXED", principal="User:bob"), everyone=True)
    assert allowed(rule("t", type=T.GROUP, principal="User:bob"), everyone=True)


def test_a_super_user_is_not_denied() -> None:
    authorizer = Authorizer(AclIndex([rule("*", Op.ALL, "DENY", principal="User:*")]), ["User:root"])
    assert authorizer.decide("User:root", "h", Op.DELETE, T.TOPIC, "t").allowed
    assert run_at_once(authorizer.decide_by_resource_type("User:root", "h", Op.WRITE, T.TOPIC)).allowed
    assert not authorizer.decide("User:other", "h", Op.DELETE, T.TOPIC, "t").allowed


def test_a_decision_names_its_rule() -> None:
    index = AclIndex([rule(), rule("u", Op.ALL, "DENY", pattern="PREFIXED", principal="User:*", host="10.0.0.1")])
    authorizer = Authorizer(index, ["User:root"])

    def why(name: str, principal: str = "User:alice") -> str:
        return str(authorizer.decide(principal, "10.0.0.1", Op.READ, T.TOPIC, name).rule)

    assert why("t") == "ALLOW User:alice from * READ on TOPIC literal t"
    assert why("users") == "DENY User:* from 10.0.0.1 ALL on TOPIC prefixed u"
    assert why("t", "User:bob") == "no ACL that allows it"
    assert why("x") == "no ACL for the resource"
    assert why("x", "User:root") == "super.users"


def test_decisions_follow_the_rules() -> None:
    index = AclIndex()
    authorizer = Authorizer(index)

    def may_write() -> tuple[bool, bool]:
        return (
            authorizer.decide("User:alice", "h", Op.WRITE, T.TOPIC, "t").allowed,
            run_at_once(authorizer.decide_by_resource_type("User:alice", "h", Op.WRITE, T.TOPIC)).allowed,
        )

    assert may_write() == (False, False)
    index.add([rule(operation=Op.WRITE)])
    assert may_write() == (True, True)
    index.remove([rule(operation=Op.WRITE)])
    assert may_write() == (False, False)


def test_the_remembered_decisions_are_bounded() -> None:
    authorizer = Authorizer(AclIndex())
    for number in range(REMEMBERED + 10):
        authorizer.decide("User:alice", "h", Op.READ, T.TOPIC, f"t{number}")
    authorizer.decide("User:alice", "h", Op.READ, T.TOPIC, "x" * 30_000)
    assert len(authorizer._decisions) == 10


@pytest.mark.parametrize(
    ("denials", "expected"),
    [
        ([], True),
        ([rule("orders", Op.WRITE, "DENY")], False),
        ([rule("ord", Op.WRITE, "DENY", pattern="PREFIXED")], False),
        ([rule("orders", Op.ALL, "DENY", pattern="PREFIXED")], False),
        ([rule("*", Op.WRITE, "DENY")], False),
        ([rule("other", Op.WRITE, "DENY"), rule("orders2", Op.WRITE, "DENY", pattern="PREFIXED")], True),
        ([rule("orders", Op.READ, "DENY"), rule("orders", Op.WRITE, "DENY", host="h2")], True),
    ],
)
def test_by_resource_type_a_permission_counts_unless_a_denial_dominates_it(denials: list[Acl], expected: bool) -> None:
    authorizer = Authorizer(AclIndex([rule("orders", Op.WRITE), *denials]))
    assert run_at_once(authorizer.decide_by_resource_type("User:alice", "h", Op.WRITE, T.TOPIC)).allowed is expected


def test_by_resource_type_a_literal_denial_does_not_dominate_a_prefix() -> None:
    acls = [rule("orders", Op.WRITE, pattern="PREFIXED"), rule("orders", Op.WRITE, "DENY")]
    authorizer = Authorizer(AclIndex(acls))
    assert run_at_once(authorizer.decide_by_resource_type("User:alice", "h", Op.WRITE, T.TOPIC)).allowed


def test_operations_are_reported_as_bits() -> None:
    authorizer = Authorizer(AclIndex([rule(operation=Op.READ)]))
    bits = authorizer.operations("User:alice", "h", T.TOPIC, "t")
    assert bits == 1 << Op.READ | 1 << Op.DESCRIBE
    assert authorizer.operations("User:alice", "h", T.CLUSTER) == 0


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (AclFilter(), ["t", "*", "t:"]),
        (AclFilter(T.TOPIC, PatternType.LITERAL, "t"), ["t"]),
        (AclFilter(T.TOPIC, PatternType.LITERAL, None), ["t", "*"]),
        (AclFilter(T.TOPIC, PatternType.PREFIXED, "t"), ["t:"]),
        (AclFilter(T.TOPIC, PatternType.ANY, "t"), ["t", "t:"]),
        (AclFilter(T.TOPIC, PatternType.MATCH, "t"), ["t", "*", "t:"]),
        (AclFilter(T.TOPIC, PatternType.MATCH, "tx"), ["*", "t:"]),
        (AclFilter(T.ANY, PatternType.MATCH, "u"), ["*"]),
        (AclFilter(T.GROUP), []),
        (AclFilter(principal="User:bob"), ["*"]),
        (AclFilter(host="h"), ["t:"]),
        (AclFilter(operation=Op.WRITE), ["t:"]),
        (AclFilter(permission=Permission.DENY), ["*"]),
    ],
)
def test_filters(wanted: AclFilter, names: list[str]) -> None:
    acls = [
        rule("t"),
        rule("*", permission="DENY", principal="User:bob"),
        rule("t", Op.WRITE, pattern="PREFIXED", host="h"),
    ]
    found = [acl for acl in run_at_once(AclIndex(acls).candidates(wanted)) if wanted.matches(acl)]
    shown = {acl.resource_name + (":" if acl.pattern_type == PatternType.PREFIXED else "") for acl in found}
    assert (len(found), shown) == (len(names), set(names))
    assert [acl for acl in acls if wanted.matches(acl)] == sorted(found, key=acls.index)
