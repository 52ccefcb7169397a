"""The authorizer and its index agree with a naive model that visits every rule, whatever the rules are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.acls.acl import Acl, AclFilter
from oncelog.broker.acls.acl_index import AclIndex
from oncelog.broker.acls.authorizer import Authorizer
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.protocol.access_rules import AclOperation, AclResourceType, PatternType, Permission

Op = AclOperation
NAMES = st.text("ab*", min_size=1, max_size=4)
TYPES = st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP])
OPERATIONS = st.sampled_from(list(AclOperation)[3:])
PRINCIPALS = st.sampled_from(["User:a", "User:b", "Role:a"])
HOSTS = st.sampled_from(["h1", "h2"])

ACLS = st.builds(
    Acl,
    TYPES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    NAMES,
    PRINCIPALS | st.just("User:*"),
    HOSTS | st.just("*"),
    OPERATIONS | st.just(Op.ALL),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
CHANGES = st.lists(st.tuples(st.booleans(), ACLS), max_size=40)
IMPLIED = {Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}, Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS}}


def concerns(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def model(acls: set[Acl], principal: str, host: str, operation: Op, type: int, name: str, everyone: bool) -> bool:
    about = [acl for acl in acls if concerns(acl, type, name)]
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(acl.permission == Permission.DENY and acl.operation in (operation, Op.ALL) for acl in mine):
        return False
    implying = {operation, Op.ALL} | IMPLIED.get(operation, set())
    if any(acl.permission == Permission.ALLOW and acl.operation in implying for acl in mine):
        return True
    return everyone and not about


def model_of_type(acls: set[Acl], principal: str, host: str, operation: Op, type: int, everyone: bool) -> bool:
    if model(acls, principal, host, operation, type, "hardcode", everyone):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type == type
        and acl.principal in (principal, "User:*")
        and acl.host in (host, "*")
        and acl.operation in (operation, Op.ALL)
    ]
    denials = {(acl.pattern_type, acl.resource_name) for acl in mine if acl.permission == Permission.DENY}
    if (PatternType.LITERAL, "*") in denials:
        return False
    for acl in mine:
        if acl.permission == Permission.DENY:
            continue
        name = acl.resource_name
        literal = acl.pattern_type == PatternType.LITERAL
        dominated = any(
            (literal and name == denied) if kind == PatternType.LITERAL else name.startswith(denied)
            for kind, denied in denials
        )
        if not dominated or (literal and name == "*"):
            return True
    return False


@given(CHANGES, st.booleans(), st.data())
def test_decisions_agree_with_the_model(changes: list[tuple[bool, Acl]], everyone: bool, data: st.DataObject) -> None:
    index, acls = AclIndex(), set[Acl]()
    authorizer = Authorizer(index, allow_everyone_if_no_acl_found=everyone)
    for adds, acl in changes:
        acls.add(acl) if adds else acls.discard(acl)
        index.add([acl]) if adds else index.remove([acl])
        asked = data.draw(st.tuples(PRINCIPALS, HOSTS, OPERATIONS, TYPES))
        name = data.draw(NAMES)
        assert authorizer.decide(*asked, name).allowed == model(acls, *asked, name, everyone)
        assert run_at_once(authorizer.decide_by_resource_type(*asked)).allowed == model_of_type(acls, *asked, everyone)
    assert set(index) == acls
    assert len(index) == len(acls)


@given(st.sets(ACLS, max_size=30), st.data())
def test_filters_find_the_same_rules_through_the_index(acls: set[Acl], data: st.DataObject) -> None:
    wanted = AclFilter(
        data.draw(TYPES | st.just(AclResourceType.ANY)),
        data.draw(st.sampled_from(list(PatternType)[1:])),
        data.draw(NAMES | st.none()),
        data.draw(PRINCIPALS | st.none()),
        data.draw(HOSTS | st.none()),
        data.draw(OPERATIONS | st.just(Op.ANY)),
        data.draw(st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY])),
    )
    found = [acl for acl in run_at_once(AclIndex(acls).candidates(wanted)) if wanted.matches(acl)]
    assert len(found) == len(set(found))
    assert set(found) == {acl for acl in acls if wanted.matches(acl)}


OF_ONE_CLIENT = st.builds(
    Acl,
    st.just(AclResourceType.TOPIC),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED, PatternType.PREFIXED]),
    st.text("ab*\U0001f600\ufffd", min_size=1, max_size=5),
    st.just("User:a"),
    st.just("*"),
    st.just(Op.WRITE),
    st.sampled_from([Permission.ALLOW, Permission.DENY, Permission.DENY]),
)


@given(st.sets(OF_ONE_CLIENT, max_size=40))
def test_denied_prefixes_dominate_the_same_permissions_as_in_the_model(acls: set[Acl]) -> None:
    asked = "User:a", "h1", Op.WRITE, AclResourceType.TOPIC
    decision = run_at_once(Authorizer(AclIndex(acls)).decide_by_resource_type(*asked))
    assert decision.allowed == model_of_type(acls, *asked, everyone=False)
