"""`oncelog consume`: records to stdout.

Owns: formats and when to stop. With a group, offsets are committed only for records that were written to stdout and
flushed: after a crash a record may be printed again, never missed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, run

if TYPE_CHECKING:
    from ..client.consumer import Consumer, ConsumerRecord

POLL_MS = 200
TOMBSTONE = b"<tombstone>"
"""How a record without a value is printed: `null` may be a text that somebody wrote. --format json is exact."""


@click.command(short_help="Read records to stdout.")
@click.argument("topics", nargs=-1, required=True)
@click.option("--from-beginning", is_flag=True, help="Start at the first record where there is no committed position.")
@click.option("--group", metavar="ID", help="Read as a member of this group, and commit what was printed.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition (of one topic, without --group).")
@click.option("--offset", type=click.IntRange(0), help="Start at this offset (with --partition).")
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="Stop after so many records.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop after so long without a record.")
@click.option("--wait", is_flag=True, help="Wait for topics that do not exist yet.  [default: fail]")
@click.option("--until-end", is_flag=True, help="Stop at what was the end when reading began.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_uncommitted also shows records of open and aborted transactions.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["value", "key-value", "json"]),
    default="value",
    show_default=True,
    help="value: raw, <tombstone> for none. key-value: key, tab, value. json: one object per line, with offset and "
    "headers.",
)
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    from_beginning: bool,
    group: str | None,
    partition: int | None,
    offset: int | None,
    max_messages: int | None,
    timeout: float | None,
    wait: bool,
    until_end: bool,
    isolation: str,
    format_: str,
    bootstrap: str,
) -> int:
    """Print the records of TOPICS, each on a line, and wait for more until Ctrl-C.

    Without --group and --from-beginning only records that come from now on are shown.

    \b
    oncelog consume orders --from-beginning --max-messages 10
    oncelog consume orders --group billing                       go on where the group stopped
    oncelog consume orders --from-beginning --until-end --format json | jq .value
    oncelog consume orders --partition 0 --offset 42 --max-messages 1
    oncelog consume orders --timeout 5                           stop when 5 s pass without a record
    oncelog consume orders --wait                                wait until somebody creates the topic
    """
    if partition is not None and (group is not None or len(topics) != 1):
        raise click.UsageError("--partition goes with one topic and without --group")
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if until_end and group is not None:
        raise click.UsageError("--until-end goes without --group: use --timeout")

    async def work() -> int:
        from ..client.consumer import Consumer

        settings: dict[str, Any] = {
            "isolation_level": isolation,
            "auto_offset_reset": "earliest" if from_beginning else "latest",
            "enable_auto_commit": False,
            "default_api_timeout_ms": PATIENCE_MS,
            "allow_auto_create_topics": False,  # to look at a topic must not create it
        }
        if group is not None:
            settings["group_id"] = group
        async with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            ends = None
            known = {topic: await _partitions(consumer, topic, wait=wait) for topic in topics}
            if group is not None:
                consumer.subscribe(topics)
            else:
                assigned = _assign(consumer, known, partition)
                if offset is not None:
                    consumer.seek(assigned[0], offset)
                elif from_beginning:
                    await consumer.seek_to_beginning(*assigned)
                else:
                    await consumer.seek_to_end(*assigned)
                if until_end:
                    ends = await consumer.end_offsets(assigned)
            await _print_all(consumer, _FORMATS[format_], max_messages, timeout, ends, commit=group is not None)
        return 0

    return run(work())


async def _partitions(consumer: Consumer, topic: str, *, wait: bool) -> list[int]:
    """The partitions of a topic; fails if it does not exist, or waits until it does."""
    from ..client.errors import UnknownTopicError

    while True:
        try:
            return sorted(each.index for each in await consumer.partitions_for(topic))
        except UnknownTopicError:
            if not wait:
                raise click.ClickException(
                    f"UNKNOWN_TOPIC_OR_PARTITION: topic {topic} does not exist. Create it with"
                    f" `oncelog topic create {topic}`, or wait for it with --wait"
                ) from None
            await asyncio.sleep(POLL_MS / 1000)


def _assign(consumer: Consumer, known: dict[str, list[int]], partition: int | None) -> list[Any]:
    from ..client.values import TopicPartition

    partitions = []
    for topic, found in known.items():
        if partition is not None and partition not in found:
            raise click.ClickException(f"topic {topic} has no partition {partition}: it has {len(found)}")
        partitions += [TopicPartition(topic, index) for index in found if partition is None or index == partition]
    consumer.assign(partitions)
    return partitions


async def _print_all(
    consumer: Consumer,
    format_: Callable[[ConsumerRecord], bytes],
    max_messages: int | None,
    timeout: float | None,
    ends: dict[Any, int] | None,
    *,
    commit: bool,
) -> None:
    from ..client.values import TopicPartition

    loop = asyncio.get_running_loop()
    out = sys.stdout.buffer
    last = loop.time()
    printed = 0
    while True:
        left = None if max_messages is None else max_messages - printed
        records = await consumer.poll(timeout_ms=POLL_MS, max_records=left)
        if records:
            last = loop.time()
            printed += len(records)
            out.write(b"".join(map(format_, records)))
            out.flush()
            if commit:
                await consumer.commit({TopicPartition(each.topic, each.partition): each.offset + 1 for each in records})
        if max_messages is not None and printed >= max_messages:
            return
        if ends is not None and all([await consumer.position(each) >= end for each, end in ends.items()]):
            return
        if timeout is not None and loop.time() - last >= timeout:
            return


def _value(record: ConsumerRecord) -> bytes:
    return (TOMBSTONE if record.value is None else record.value) + b"\n"


def _key_value(record: ConsumerRecord) -> bytes:
    return (b"null" if record.key is None else record.key) + b"\t" + _value(record)


def _json(record: ConsumerRecord) -> bytes:
    from .formats import record_as_json

    line = record_as_json(
        record.offset, record.timestamp, record.key, record.value, record.headers, record.topic, record.partition
    )
    return line.encode() + b"\n"


_FORMATS = {"value": _value, "key-value": _key_value, "json": _json}
