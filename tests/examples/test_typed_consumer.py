"""examples/typed_consumer.py: orders arrive as objects, and each record that is none is set aside once."""

from __future__ import annotations

from pathlib import Path

from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, Program, await_records, fill
from support.reading import make_topic

PROGRAM = str(EXAMPLES / "typed_consumer.py")


def test_what_is_no_order_is_set_aside_and_the_rest_is_packed(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.address, "orders")
    apples, pears = {"item": "apples", "count": 42, "new": True}, {"item": "pears", "count": 7, "note": "ripe"}
    fill(broker.address, "orders", [apples, "no order", {"item": "plums", "count": "many"}, pears])
    with Program(broker.address, tmp_path, PROGRAM) as program:
        assert [program.line() for _ in range(4)] == [
            "order 0: 42 apples",
            "set aside: orders-0 at offset 1",
            "set aside: orders-0 at offset 2",
            "order 3: 7 pears",
        ]
        first, second = await_records(program, "orders-unreadable", 2)
    assert (first.key(), first.value()) == (b"1", b"no order")
    assert second.value() == b'{"item": "plums", "count": "many"}'
    ((name, reason),) = second.headers() or []
    assert name == "error"
    assert isinstance(reason, bytes)
    assert b"Order.count: expected int, not str" in reason
