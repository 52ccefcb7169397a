"""A producer that begins the next transaction as soon as it is told of the last: how often is it sent away?

Apache Kafka answers CONCURRENT_TRANSACTIONS while the last transaction's markers are being written, and the client asks
again after a pause. We let the request wait for the markers instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from oncelog import Admin
from oncelog.protocol.errors import ErrorCode
from rich.console import Console
from rich.table import Table
from support.back_to_back import PATIENT, Seen, Work, bundled, bundled_with_offsets, java, librdkafka, observed
from support.broker import BrokerProcess
from support.transaction_wire import read_decided
from support.wire import Wire

Names = Callable[[str], str]
SENT_AWAY = ErrorCode.CONCURRENT_TRANSACTIONS


async def run(address: str, work: Work, name: str, count: int) -> Seen:
    """The transactions, all of which must be there afterwards, once and in order."""
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topic(name, 1)
        await admin.fence_producers([f"{name}-to-make-the-topics"])
    seen = await observed(address, work, name, name, count)
    with Wire(address) as wire:
        assert read_decided(wire, name) == [str(number).encode() for number in range(count)]
    return seen


@pytest.mark.oncelog_only(reason="Apache Kafka does send away")
@pytest.mark.parametrize("work", [librdkafka, bundled, bundled_with_offsets])
async def test_nobody_is_sent_away(tmp_path: Path, fresh_name: Names, work: Work) -> None:
    with BrokerProcess(tmp_path, *PATIENT) as broker:
        seen = await run(broker.address, work, fresh_name("txn"), 200)
    assert seen.count(SENT_AWAY) == 0
    assert seen.requests["EndTxn"] == 200


@pytest.mark.slow
@pytest.mark.oncelog_only(reason="starts Apache Kafka by itself, and compares")
@pytest.mark.timeout(3600)
async def test_ten_thousand_in_a_row_beside_apache_kafka(tmp_path: Path) -> None:
    from support.apache_kafka import ApacheKafka

    count = 10_000
    table = Table(title=f"{count} transactions of one record, one behind the other")
    for column in ("client", "broker", "EndTxn", "CONCURRENT_TRANSACTIONS", "requests", "seconds"):
        table.add_column(column, justify="left" if column in ("client", "broker") else "right")
    sent_away = {}
    with BrokerProcess(tmp_path / "ours") as ours, ApacheKafka(tmp_path / "kafka") as kafka:
        for client, work in (
            ("librdkafka", librdkafka),
            ("Java 4.1", java),
            ("bundled", bundled),
            ("bundled, with offsets", bundled_with_offsets),
        ):
            for broker, address in (("oncelog", ours.address), ("Apache Kafka 4.1", kafka.address)):
                seen = await run(address, work, client.replace(",", "").replace(" ", "-"), count)
                sent_away[client, broker] = seen.count(SENT_AWAY)
                table.add_row(
                    client,
                    broker,
                    f"v{seen.versions['EndTxn']}",
                    str(sent_away[client, broker]),
                    str(sum(seen.requests.values())),
                    f"{seen.seconds:.1f}",
                )
    Console(width=120).print(table)
    assert {key: number for key, number in sent_away.items() if key[1] == "oncelog" and number} == {}
