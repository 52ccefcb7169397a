"""examples/etl.py: a worker is killed, its successor goes on; every record is cleaned, left out or buried once."""

from __future__ import annotations

import json
from pathlib import Path

from support.broker import BrokerProcess
from support.example_programs import EXAMPLES, Program, await_records, fill
from support.reading import committed_offset, make_topic, read_topic, values

HALF = 300
PARTITIONS = 3


def raw(number: int) -> dict[str, object] | str:
    """Return an order; of ten, one is not JSON, one has a negative price, and one is a test."""
    order: dict[str, object] = {"customer": f" Customer-{number} ", "price": f"{number}.60"}
    match number % 10:
        case 2:
            return f"order {number}"
        case 5:
            return order | {"price": f"-{number}"}
        case 8:
            return order | {"test": True}
    return order


def test_each_record_is_cleaned_filtered_or_buried_once_although_a_worker_dies(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    for topic in ("raw-orders", "raw-orders-dead", "orders"):
        make_topic(broker.address, topic, PARTITIONS)
    worker = (str(EXAMPLES / "etl.py"), "worker-0")
    fill(broker.address, "raw-orders", map(raw, range(HALF)))
    with Program(broker.address, tmp_path, *worker) as program:
        await_records(program, "orders", 1)
        program.kill()
    fill(broker.address, "raw-orders", map(raw, range(HALF, 2 * HALF)))
    clean = [number for number in range(2 * HALF) if number % 10 not in (2, 5, 8)]
    bad = [number for number in range(2 * HALF) if number % 10 in (2, 5)]
    with Program(broker.address, tmp_path, *worker) as program:
        await_records(program, "orders", len(clean))
        await_records(program, "raw-orders-dead", len(bad))
        assert program.terminate() == 0, program.output
        records_in, records_out, dead_letters = (int(word) for word in program.output[-1].split() if word.isdigit())
        assert records_in == records_out + dead_letters + HALF // 10  # a tenth are test orders, which are left out

    written = sorted(values(broker.address, "orders"))
    expected = [{"customer": f"customer-{number}", "cents": number * 100 + 60} for number in clean]
    assert written == sorted(json.dumps(order).encode() for order in expected)

    buried = [message for part in read_topic(broker.address, "raw-orders-dead").values() for message in part]
    assert sorted((m.value() or b"").decode() for m in buried) == sorted(
        value if isinstance(value := raw(number), str) else json.dumps(value) for number in bad
    )
    reasons = {dict(message.headers() or [])["__oncelog.errors.exception"] for message in buried}
    assert reasons == {b"json.decoder.JSONDecodeError", b"ValueError"}

    ends = [committed_offset(broker.address, "clean-orders", "raw-orders", number) for number in range(PARTITIONS)]
    assert sum(ends) == 2 * HALF
