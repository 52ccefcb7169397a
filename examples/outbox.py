"""A transactional outbox: messages that a database commits reach a topic exactly once, even if the relay is killed.

Shows   The application writes its row and a message in one transaction of the database. A relay sends the messages in
        a Kafka transaction, which also commits the id of the last message, as an offset of a group without members.
        At its start the relay reads this id, so that it never sends a message twice and never skips a message.
Run     oncelog serve --data-dir data --listen 127.0.0.1:9092
        python examples/outbox.py place shop.db alice '42 apples'
        python examples/outbox.py relay shop.db    # until SIGTERM or Ctrl-C

The ids must become visible in ascending order. SQLite ensures this because it has one writer at a time. In PostgreSQL a
transaction that began earlier may commit later: use `oncelog connect` there, which reads PostgreSQL's replication log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import threading

from oncelog import AbortableError, ConsumerGroupMetadata, TopicPartition
from oncelog.sync import Admin, Producer

BOOTSTRAP = os.environ.get("ONCELOG_BOOTSTRAP", "127.0.0.1:9092")
GROUP = ConsumerGroupMetadata("orders-outbox")
POSITION = TopicPartition("orders", 0)  # the group's offset here is the id of the last message that was sent
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, item TEXT);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB);
"""


def place_order(database: sqlite3.Connection, customer: str, item: str) -> None:
    """Write an order and its message in one database transaction: both are written or neither is."""
    with database:
        database.execute("INSERT INTO orders (customer, item) VALUES (?, ?)", (customer, item))
        database.execute("INSERT INTO outbox (key, value) VALUES (?, ?)", (customer.encode(), item.encode()))


def relay(database: sqlite3.Connection, stopping: threading.Event) -> None:
    """Send the messages of the outbox until `stopping` is set."""
    with Producer(bootstrap_servers=BOOTSTRAP, transactional_id=GROUP.group_id) as producer:
        producer.init_transactions()  # fences an older relay, and aborts the transaction that it left open
        with Admin(bootstrap_servers=BOOTSTRAP) as admin:
            committed = admin.group_offsets(GROUP.group_id, require_stable=True).get(POSITION)
        sent = committed.offset if committed is not None else 0
        while not stopping.is_set():
            with database:
                database.execute("DELETE FROM outbox WHERE id <= ?", (sent,))
            rows = database.execute("SELECT id, key, value FROM outbox ORDER BY id LIMIT 500").fetchall()
            if not rows:
                stopping.wait(0.2)
                continue
            with contextlib.suppress(AbortableError):  # the transaction was aborted: the loop tries again
                with producer.transaction() as txn:
                    for _, key, value in rows:
                        txn.send("orders", value, key=key)
                    txn.send_offsets({POSITION: rows[-1][0]}, GROUP)
                sent = rows[-1][0]


if __name__ == "__main__":
    with contextlib.closing(sqlite3.connect(sys.argv[2])) as connection:
        connection.executescript(SCHEMA)
        if sys.argv[1] == "place":
            place_order(connection, *sys.argv[3:5])
        else:
            stopping = threading.Event()

            def stop(number: int, frame: object) -> None:
                stopping.set()

            signal.signal(signal.SIGTERM, stop)
            signal.signal(signal.SIGINT, stop)
            relay(connection, stopping)
