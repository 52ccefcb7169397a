"""examples/outbox.py: every order reaches the topic once, although a relay dies between commit and clean-up."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, Program, await_records, run
from support.reading import values

PROGRAM = str(EXAMPLES / "outbox.py")


def place(broker: BrokerProcess, directory: Path, item: str) -> None:
    run(broker.address, directory, PROGRAM, "place", "shop.db", "alice", item)


def execute(directory: Path, statement: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(directory / "shop.db")) as database, database:
        return database.execute(statement).fetchall()


def test_orders_are_sent_once_although_a_relay_dies_before_it_cleans_up(broker: BrokerProcess, tmp_path: Path) -> None:
    place(broker, tmp_path, "apples")
    place(broker, tmp_path, "pears")
    execute(tmp_path, "CREATE TRIGGER crash BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END")
    output = run(broker.address, tmp_path, PROGRAM, "relay", "shop.db", code=1)
    assert output[-1].endswith("the disk is gone")
    assert values(broker.address, "orders") == [b"apples", b"pears"]
    assert execute(tmp_path, "SELECT count(*) FROM outbox") == [(2,)]

    execute(tmp_path, "DROP TRIGGER crash")
    with Program(broker.address, tmp_path, PROGRAM, "relay", "shop.db") as relay:
        place(broker, tmp_path, "plums")
        await_records(relay, "orders", 3)
        relay.kill()
    place(broker, tmp_path, "figs")
    with Program(broker.address, tmp_path, PROGRAM, "relay", "shop.db") as relay:
        await_records(relay, "orders", 4)
        assert relay.terminate() == 0, relay.output
        assert relay.output == []
    assert values(broker.address, "orders") == [b"apples", b"pears", b"plums", b"figs"]
    assert execute(tmp_path, "SELECT item FROM orders") == [("apples",), ("pears",), ("plums",), ("figs",)]
