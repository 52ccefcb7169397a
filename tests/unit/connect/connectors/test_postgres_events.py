"""The records of PostgresSource: what a value that cannot be read says."""

from __future__ import annotations

import pytest
from oncelog.connect import ConnectError
from oncelog.connect.connectors.postgres.events import Events, Origin
from oncelog.connect.connectors.postgres.pgoutput import Relation, RelationColumn
from oncelog.connect.connectors.postgres.settings import SETTINGS

CONFIG = {"database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
NUMERIC, SCALE_2 = 1700, (9 << 16 | 2) + 4


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
