"""No slice of work goes through all rules, however many rules a client or a resource has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oncelog.broker.acls.acl import Acl, AclFilter
from oncelog.broker.acls.acl_index import AclIndex
from oncelog.broker.acls.authorizer import REMEMBERED, Authorizer
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission
from support.counted_lines import lines_of, lines_of_longest_slice

Op, T = AclOperation, AclResourceType
MANY = 20_000
LINES = 15_000
"""Fewer lines than there are rules, and more than a slice has."""

ASKED = "User:alice", "10.0.0.1", Op.WRITE, T.TOPIC


def rule(
    name: str,
    *,
    principal: str = "User:alice",
    operation: AclOperation = Op.WRITE,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    return Acl(T.TOPIC, pattern, name, principal, "*", operation, permission)


def deny(name: str) -> Acl:
    return rule(name, permission=Permission.DENY, pattern=PatternType.PREFIXED)


RULES: dict[str, tuple[Callable[[], list[Acl]], bool]] = {
    "for other operations": (lambda: [rule(f"t{n}", operation=Op.READ) for n in range(MANY)], False),
    "that a denial of one prefix dominates": (lambda: [deny("t"), *(rule(f"t{n}") for n in range(MANY))], False),
    "and one that nothing dominates": (
        lambda: [deny("t"), *(rule(f"t{n}") for n in range(MANY)), rule("u")],
        True,
    ),
    "that deny prefixes": (lambda: [*(deny(f"t{n:05}") for n in range(MANY)), rule("t00010")], False),
}


@pytest.mark.parametrize("which", RULES)
def test_no_slice_goes_through_all_rules_of_a_client(which: str) -> None:
    build, allowed = RULES[which]
    authorizer = Authorizer(AclIndex(build()))
    lines, decision = lines_of_longest_slice(authorizer.decide_by_resource_type(*ASKED))
    assert decision.allowed is allowed
    assert lines < LINES


def test_the_cost_is_not_that_of_all_permissions_for_each_length_of_a_denied_prefix() -> None:
    lengths = 200
    denials = [deny("x" * length) for length in range(1, lengths)]
    permissions = [rule("y" * lengths + str(number)) for number in range(1000)]
    authorizer = Authorizer(AclIndex([*denials, deny("y" * lengths), *permissions]))
    lines, decision = lines_of(lambda: run_at_once(authorizer.decide_by_resource_type(*ASKED)))
    assert not decision.allowed
    assert lines < 50 * len(permissions)


def test_decisions_about_other_names_do_not_displace_one_about_a_type() -> None:
    authorizer = Authorizer(AclIndex([rule("t")]))
    first = run_at_once(authorizer.decide_by_resource_type(*ASKED))
    for number in range(REMEMBERED + 10):
        authorizer.decide(*ASKED, f"t{number}")
    assert run_at_once(authorizer.decide_by_resource_type(*ASKED)) is first


def test_a_decision_that_took_long_is_not_remembered_beyond_a_change_of_the_rules() -> None:
    index = AclIndex([deny("t"), *(rule(f"t{number}") for number in range(1000))])
    authorizer = Authorizer(index)
    steps = authorizer.decide_by_resource_type(*ASKED)
    next(steps)
    index.add([rule("u")])
    assert not run_at_once(steps).allowed, "decided with the rules at the time of the call"
    assert run_at_once(authorizer.decide_by_resource_type(*ASKED)).allowed


@pytest.mark.parametrize("principal", [None, "User:nobody", "User:u7"])
def test_no_slice_goes_through_all_rules_of_a_name(principal: str | None) -> None:
    index = AclIndex(rule("orders", principal=f"User:u{number}") for number in range(MANY))
    wanted = AclFilter(T.TOPIC, PatternType.LITERAL, "orders", principal)
    lines, found = lines_of_longest_slice(index.candidates(wanted))
    assert lines < LINES
    assert sum(map(wanted.matches, found)) == {None: MANY, "User:nobody": 0, "User:u7": 1}[principal]


def test_the_candidates_of_a_principal_with_few_rules_are_these() -> None:
    index = AclIndex(rule("orders", principal=f"User:u{number}") for number in range(MANY))
    wanted = AclFilter(T.TOPIC, PatternType.LITERAL, "orders", "User:u7")
    assert len(run_at_once(index.candidates(wanted))) == 1


def test_a_filter_of_a_name_counts_the_lengths_of_the_prefixes() -> None:
    lengths = 500
    index = AclIndex(rule("x" * length, pattern=PatternType.PREFIXED) for length in range(1, lengths + 1))
    wanted = AclFilter(T.ANY, PatternType.MATCH, "y" * lengths)
    units = [done for done in index.candidates(wanted) if isinstance(done, int)]
    assert sum(units) >= lengths // 8
