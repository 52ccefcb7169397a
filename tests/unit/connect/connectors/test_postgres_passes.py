"""Which changes the rows of an interrupted snapshot contain."""

from __future__ import annotations

import pytest
from oncelog.connect.connectors.postgres.events import Events, TableEvents
from oncelog.connect.connectors.postgres.passes import Pass, Passes
from oncelog.connect.connectors.postgres.pgoutput import Begin, Relation, RelationColumn
from oncelog.connect.connectors.postgres.settings import SETTINGS

INT8, TEXT, UUID = 20, 25, 2950
OIDS = {"a": 1, "b": 2, "c": 3, "d": 4, "t": 20}
CONFIG = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p", "slot.name": "s"}


def table(name: str, *kinds: int) -> TableEvents:
    columns = tuple(RelationColumn(f"k{place}", oid, -1, True) for place, oid in enumerate(kinds))
    relation = Relation(OIDS[name], "public", name, "d", columns)
    return Events(SETTINGS.parse(CONFIG)).table(relation, [each.name for each in columns], key_columns(*kinds))


def key_columns(*kinds: int) -> list[list[int]]:
    return [[place, oid, 0] for place, oid in enumerate(kinds)]


def begin(xid: int, commit_lsn: int = 1) -> Begin:
    return Begin(commit_lsn, 0, xid)


@pytest.mark.parametrize(
    ("snapshot", "xid", "seen"),
    [
        ("10:20:12,15", 9, True),
        ("10:20:12,15", 11, True),
        ("10:20:12,15", 12, False),
        ("10:20:12,15", 20, False),
        ("10:20:", 25, False),
        (f"{2**32 + 5}:{2**32 + 9}:{2**32 + 7}", 6, True),
        (f"{2**32 + 5}:{2**32 + 9}:{2**32 + 7}", 7, False),
        (f"{2**32 + 5}:{2**32 + 9}:{2**32 + 7}", 2**32 - 1, True),
        (f"{2**33 - 3}:{2**33 - 1}:", 4, False),
    ],
)
def test_a_pass_saw_the_transactions_that_were_visible(snapshot: str, xid: int, seen: bool) -> None:
    assert Pass(20, None, False, 20, snapshot, 100).saw(begin(xid)) is seen


def test_what_is_committed_behind_the_begin_of_a_pass_is_new() -> None:
    passes = Passes(exactly_once=True)
    passes.add(Pass(20, None, False, 20, "10:20:", 100))
    assert passes.contain(begin(5, 100), table("t", INT8), [b"1"])
    assert not passes.contain(begin(5, 101), table("t", INT8), [b"1"])


@pytest.mark.parametrize(
    ("kinds", "key", "row", "contained"),
    [
        ((INT8,), ["9"], [b"10"], True),
        ((INT8,), ["9"], [b"9"], False),
        ((INT8,), ["-9"], [b"-10"], False),
        ((INT8, INT8), ["1", "5"], [b"1", b"6"], True),
        ((INT8, INT8), ["1", "5"], [b"0", b"6"], False),
        ((UUID,), ["0a"], [b"0b"], True),
        ((TEXT,), ["a"], [b"b"], False),
        ((INT8, TEXT), ["1", "a"], [b"2", b"b"], False),
    ],
)
def test_keys_are_compared_where_the_server_would_order_them_alike(
    kinds: tuple[int, ...], key: list[str], row: list[bytes], contained: bool
) -> None:
    passes = Passes(exactly_once=True)
    passes.add(Pass(20, key, False, 20, "10:20:", 100, key_columns(*kinds)))
    assert passes.contain(begin(5), table("t", *kinds), list(row)) is contained


def test_the_last_pass_that_reads_a_row_decides() -> None:
    passes = Passes(exactly_once=True)
    passes.add(Pass(2, ["5"], False, 3, "10:10:", 100, key_columns(INT8)))
    passes.add(Pass(2, ["9"], False, 3, "20:20:", 200, key_columns(INT8)))
    passes = Passes(passes.offset(), exactly_once=True)
    rows = {name: table(name, INT8) for name in "abc"}
    seen = [
        (name, key, xid)
        for name in "abc"
        for key in (5, 6, 10)
        for xid in (9, 19, 20)
        if passes.contain(begin(xid), rows[name], [str(key).encode()])
    ]
    later = [("b", 10, 9), ("b", 10, 19), *(("c", key, xid) for key in (5, 6, 10) for xid in (9, 19))]
    assert seen == [("b", 6, 9), *later]


def test_a_pass_that_has_read_nothing_is_replaced() -> None:
    passes = Passes(exactly_once=True)
    for xmax in (10, 20):
        passes.add(Pass(20, ["5"], False, 20, f"{xmax}:{xmax}:", xmax))
    assert passes.offset() == {"exactly_once": True, "passes": '[[[20,["5"],false,20,"20:20:",20,null]],[]]'}


def test_behind_a_truncation_that_not_all_passes_have_seen_all_changes_are_new() -> None:
    passes = Passes(exactly_once=True)
    passes.add(Pass(2, ["5"], False, 3, "10:10:", 100))
    a, b, c = (table(name, INT8) for name in "abc")
    assert [passes.contain_truncate(begin(9), each) for each in (a, b, c)] == [False, False, True]
    passes.contain_no_more(OIDS["b"])
    passes = Passes(passes.offset(), exactly_once=True)
    assert not passes.contain(begin(9), b, [b"6"])
    assert passes.contain(begin(9), c, [b"6"])


def test_a_table_that_the_pass_did_not_list_contains_nothing() -> None:
    passes = Passes(exactly_once=True)
    passes.add(Pass(2, None, False, 3, "10:10:", 100))
    contained = {name: passes.contain(begin(9), table(name, INT8), [b"1"]) for name in "abcd"}
    assert contained == {"a": False, "b": True, "c": True, "d": False}


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_passes_contain_nothing_unless_all_records_were_produced_with_exactly_once(before: bool, now: bool) -> None:
    passes = Passes(Passes(exactly_once=before).offset(), exactly_once=now)
    passes.add(Pass(2, None, False, 3, "10:10:", 100))
    b = table("b", INT8)
    assert passes.contain(begin(9), b, [b"6"]) is (before and now)
    assert passes.contain_truncate(begin(9), b) is (before and now)
    assert passes.until_lsn == 100
