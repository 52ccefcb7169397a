"""Define `oncelog consume`: print records to stdout.

With a group, the command commits an offset only after the record has been written to stdout and flushed. After a crash,
a record may be printed again, but no record is missed.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, client_settings, run
from .parameters import MAX_INT32, MAX_INT64, Number, Seconds, time_of
from .progress import Progress
from .starting_points import POLL_MS, seek_to_last, seek_to_time
from .waiting import Waiting

if TYPE_CHECKING:
    from ..client.consumer import Consumer
    from .record_formats import Format


@click.command(short_help="Read records to stdout.")
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--from-beginning", is_flag=True, help="Start at the first record of each partition that has no committed offset."
)
@click.option(
    "--from-time",
    type=time_of,
    metavar="TIME",
    help="Start at the first record of this time or later (without --group).",
)
@click.option("--tail", type=Number(1), metavar="N", help="Start N records before each partition's end.")
@click.option("--offset", type=Number(0, MAX_INT64), help="Start at this offset (with --partition).")
@click.option("--partition", type=Number(), help="Only this partition (of one topic, without --group).")
@click.option(
    "--group", metavar="ID", help="Read as a member of this group, and commit the offsets of printed records."
)
@click.option("--max-messages", type=Number(1, MAX_INT64), metavar="N", help="Stop after this number of records.")
@click.option("--timeout", type=Seconds(), metavar="SECONDS", help="Stop after this time without a record.")
@click.option("--until-end", is_flag=True, help="Stop at the end that each partition had when reading began.")
@click.option("--wait", is_flag=True, help="Wait for topics that do not exist yet.  [default: fail]")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="read_uncommitted also shows records of open and aborted transactions.  [default: read_committed]",
)
@click.option(
    "--format",
    "format_",
    metavar="FORMAT",
    help="value, key-value, json, or a template; see above.  [default: value]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    from_beginning: bool,
    from_time: int | None,
    tail: int | None,
    offset: int | None,
    partition: int | None,
    group: str | None,
    max_messages: int | None,
    timeout: float | None,
    until_end: bool,
    wait: bool,
    isolation: str | None,
    format_: str | None,
    as_json: bool,
    bootstrap: str,
) -> int:
    """Print the records of TOPICS, each on a line, and wait for more until Ctrl-C.

    Without an option that sets the start, only records that arrive from now on are printed. With --group, this holds
    only for partitions without a committed offset. TIME is 2026-03-01T12:30 (local time), 2026-03-01T12:30:00Z, 15m,
    2h or 7d (that long ago), or milliseconds since 1970.

    \b
    FORMAT is one of
      value        the value and a newline; <tombstone> for a record without a value
      key-value    key, tab, value, newline
      json         one object per line, with offset, timestamp and headers
    or a template, as in kcat, which needs \\n at the end of each line:
      %t topic   %p partition   %o offset   %T timestamp in ms   %h headers: name=value,name=value
      %k key     %s value       %K %S length of the key, of the value, in bytes; -1 if missing
      %R length of the value as a 4-byte big-endian number   %% a percent sign

    \b
    oncelog consume orders --from-beginning --max-messages 10
    oncelog consume orders --group billing                       continue at the group's committed offsets
    oncelog consume orders --from-beginning --until-end --json | jq .value
    oncelog consume orders --tail 5 --until-end                  the last five records of each partition
    oncelog consume orders --from-time 15m --format '%T %k=%s\\n'
    oncelog consume orders --partition 0 --offset 42 --max-messages 1
    oncelog consume orders --timeout 5                           stop when 5 s pass without a record
    oncelog consume orders --wait                                wait until the topic is created
    """
    if partition is not None and (group is not None or len(topics) != 1):
        raise click.UsageError("--partition needs exactly one topic, and cannot be combined with --group")
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    if from_beginning + sum(each is not None for each in (from_time, tail, offset)) > 1:
        raise click.UsageError("--from-beginning, --from-time, --tail and --offset cannot be combined")
    if group is not None and (from_time is not None or tail is not None):
        raise click.UsageError(
            "--from-time and --tail cannot be combined with --group: `oncelog group reset` sets a group's offsets"
        )
    if until_end and group is not None:
        raise click.UsageError("--until-end cannot be combined with --group: use --timeout")
    if as_json and format_ not in (None, "json"):
        raise click.UsageError("--json and --format cannot be combined")
    from .record_formats import record_format

    print_record = record_format("json" if as_json else format_ or "value")

    async def work() -> int:
        from ..client.consumer import Consumer

        settings: dict[str, object] = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "latest",
            "default_api_timeout_ms": PATIENCE_MS,
            **client_settings(bootstrap, "consumer"),
            "group_id": group,
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,  # reading a topic must not create it
        }
        if isolation is not None:
            settings["isolation_level"] = isolation
        if from_beginning:
            settings["auto_offset_reset"] = "earliest"
        async with Consumer(settings) as consumer:
            ends = None
            known = {topic: await _partitions(consumer, topic, wait=wait) for topic in topics}
            if group is not None:
                consumer.subscribe(topics)
            else:
                assigned = _assign(consumer, known, partition)
                if offset is not None:
                    consumer.seek(assigned[0], offset)
                elif from_time is not None:
                    await seek_to_time(consumer, assigned, from_time)
                elif tail is not None:
                    await seek_to_last(consumer, assigned, tail, settings)
                elif consumer.config.auto_offset_reset == "earliest":
                    await consumer.seek_to_beginning(*assigned)
                else:
                    await consumer.seek_to_end(*assigned)
                if until_end:
                    ends = await consumer.end_offsets(assigned)
            await _print_all(consumer, print_record, max_messages, timeout, ends, commit=group is not None)
        return 0

    return run(work())


async def _partitions(consumer: Consumer, topic: str, *, wait: bool) -> list[int]:
    """Return the sorted partition numbers of a topic.

    If the topic does not exist, wait until it is created if `wait` is true, else raise ClickException.
    """
    import asyncio

    from ..client.errors import UnknownTopicError

    with Waiting(f"waiting for topic {topic} to be created") if wait else contextlib.nullcontext():
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
    for topic, indexes in known.items():
        if partition is not None and partition not in indexes:
            raise click.ClickException(
                f"topic {topic} has no partition {partition}: its number of partitions is {len(indexes)}"
            )
        partitions += [TopicPartition(topic, index) for index in indexes if partition is None or index == partition]
    consumer.assign(partitions)
    return partitions


async def _print_all(
    consumer: Consumer,
    print_record: Format,
    max_messages: int | None,
    timeout: float | None,
    ends: dict[Any, int] | None,
    *,
    commit: bool,
) -> None:
    """Print records until a limit is reached. `ends`: stop at these offsets, and print no record beyond them."""
    import asyncio

    loop = asyncio.get_running_loop()
    unread = set(ends or ())
    out = sys.stdout.buffer
    last = loop.time()
    printed = 0
    with Progress("records read", visible=not sys.stdout.isatty()) as progress:
        while True:
            if ends is not None:
                finished = [each for each in unread if await consumer.position(each) >= ends[each]]
                consumer.pause(*finished)
                unread.difference_update(finished)
                if not unread:
                    return
            left = None if max_messages is None else min(max_messages - printed, MAX_INT32)
            records = await consumer.poll(timeout_ms=POLL_MS, max_records=left)
            if ends is not None:
                records = [each for each in records if each.offset < ends[each.topic_partition]]
            if records:
                last = loop.time()
                printed += len(records)
                out.write(b"".join(map(print_record, records)))
                out.flush()
                progress.show(printed)
                if commit:
                    await consumer.commit({each.topic_partition: each.offset + 1 for each in records})
            if max_messages is not None and printed >= max_messages:
                return
            if timeout is not None and loop.time() - last >= timeout:
                return
