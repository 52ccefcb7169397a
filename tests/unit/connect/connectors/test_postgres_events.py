"""The records of PostgresSource: values that cannot be read or were not sent, and times with zones."""

from __future__ import annotations

import pytest
from oncelog.connect import ConnectError
from oncelog.connect.connectors.postgres.events import Events, Origin
from oncelog.connect.connectors.postgres.pgoutput import UNCHANGED, Relation, RelationColumn
from oncelog.connect.connectors.postgres.settings import SETTINGS

CONFIG = {"database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
NUMERIC, SCALE_2 = 1700, (9 << 16 | 2) + 4
TEXT, BYTEA, TIMETZ = 25, 17, 1266


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_a_decimal_cannot_hold_names_table_column_and_setting(text: str) -> None:
    relation = Relation(1, "public", "t", "d", (RelationColumn("price", NUMERIC, SCALE_2, False),))
    events = Events(SETTINGS.parse(CONFIG))
    with pytest.raises(
        ConnectError,
        match=rf"public\.t\.price .*{text} is not a Decimal: set decimal\.handling\.mode to string or double",
    ):
        events.upsert(events.table(relation, []), "c", [text.encode()], None, Origin(0, 0), {})
    events = Events(SETTINGS.parse({**CONFIG, "decimal.handling.mode": "double"}))
    record = events.upsert(events.table(relation, []), "c", [text.encode()], None, Origin(0, 0), {})
    assert str(record.value["after"]["price"]) == str(float(text))


@pytest.mark.parametrize("mode", ["precise", "double"])
def test_a_number_that_the_server_did_not_send_is_no_null(mode: str) -> None:
    relation = Relation(1, "public", "t", "d", (RelationColumn("price", NUMERIC, SCALE_2, False),))
    events = Events(SETTINGS.parse({**CONFIG, "decimal.handling.mode": mode}))
    with pytest.raises(ConnectError, match=r"public\.t\.price .* set decimal\.handling\.mode=string"):
        events.upsert(events.table(relation, []), "u", [UNCHANGED], None, Origin(0, 0), {})


@pytest.mark.parametrize(
    ("oid", "settings", "placeholder"),
    [
        (NUMERIC, {"decimal.handling.mode": "string"}, "__debezium_unavailable_value"),
        (TEXT, {}, "__debezium_unavailable_value"),
        (TEXT, {"unavailable.value.placeholder": "?"}, "?"),
        (BYTEA, {}, b"__debezium_unavailable_value"),
    ],
)
def test_a_value_that_the_server_did_not_send_has_a_placeholder(
    oid: int, settings: dict[str, str], placeholder: object
) -> None:
    relation = Relation(1, "public", "t", "d", (RelationColumn("c", oid, SCALE_2 if oid == NUMERIC else -1, False),))
    events = Events(SETTINGS.parse({**CONFIG, **settings}))
    record = events.upsert(events.table(relation, []), "u", [UNCHANGED], None, Origin(0, 0), {})
    assert record.value["after"]["c"] == placeholder


@pytest.mark.parametrize("precision", ["adaptive", "connect"])
def test_a_time_with_a_zone_is_in_utc(precision: str) -> None:
    relation = Relation(1, "public", "t", "d", (RelationColumn("c", TIMETZ, -1, False),))
    events = Events(SETTINGS.parse({**CONFIG, "time.precision.mode": precision}))
    record = events.upsert(events.table(relation, []), "c", [b"08:00:00.25+05:45"], None, Origin(0, 0), {})
    row = record.value["after"]
    assert row["c"] == "02:15:00.25Z"
    assert row.schema.field("c").schema.name == "io.debezium.time.ZonedTime"


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        ("Order Details", "p.public.Order_Details"),
        ("a-b.c_1", "p.public.a-b.c_1"),
        ("é", "p.public._"),
        ("😀", "p.public.__"),
        ("x" * 300, "p.public." + "x" * 240),
    ],
)
def test_a_topic_has_an_underscore_for_each_character_that_no_topic_may_have(table: str, topic: str) -> None:
    relation = Relation(1, "public", table, "d", (RelationColumn("c", TEXT, -1, False),))
    assert Events(SETTINGS.parse(CONFIG)).table(relation, []).topic == topic


@pytest.mark.parametrize("identity", ["d", "f", "i", "n"])
def test_changes_without_a_column_of_the_key_are_refused(identity: str) -> None:
    columns = RelationColumn("a", TEXT, -1, identity == "f"), RelationColumn("b", TEXT, -1, identity == "f")
    events, relation = Events(SETTINGS.parse(CONFIG)), Relation(1, "public", "t", identity, columns)
    with pytest.raises(ConnectError, match=r"public\.t has unread changes without column id, c, "):
        events.table(relation, ["a", "id", "c"])
    assert events.table(relation, ["b", "a"]).key_columns == (1, 0)
    assert events.table(relation, []).key_schema is None


def test_changes_have_the_earlier_key_if_the_server_says_which_columns_it_has() -> None:
    columns = RelationColumn("a", TEXT, -1, False), RelationColumn("b", TEXT, -1, True)
    table = Events(SETTINGS.parse(CONFIG)).table(Relation(1, "public", "t", "d", columns), ["id"])
    assert (table.key_columns, table.current_key) == ((1,), None)
