"""Define `oncelog produce`: write records from the command line or from the lines of stdin.

The command holds only a limited number of lines that the producer has not accepted yet, so that stdin may be of any
size. With --txn, all records are written in one transaction. Without --txn, the error message of a failed command says
which lines are written.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING

import click

from .bootstrap import PATIENCE_MS, bootstrap_option, client_settings, connect_admin, run
from .json_output import json_option, print_json
from .parameters import Number, bytes_of
from .progress import Progress

if TYPE_CHECKING:
    from ..client.admin import Admin
    from ..client.producer import Delivery, Producer
    from ..protocol.errors import KafkaError

LINES_AHEAD = 64
"""Maximum number of chunks of lines in the queue between the reading thread and the producer."""
CHUNK = 64 * 1024
LINES_PENDING = 100_000
"""Maximum number of lines in memory whose outcome is not known yet."""
PROGRESS_EVERY = 1000
"""Records between two updates of the progress line."""


@click.command(short_help="Write records: --value, or lines from stdin.")
@click.argument("topic")
@click.option("--value", help="Send this one record instead of reading stdin.")
@click.option("--key", help="Key of every record.")
@click.option(
    "--key-separator", metavar="TEXT", help="Split lines at TEXT into key and value. A line without TEXT has no key."
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record; may be repeated."
)
@click.option(
    "-Z",
    "--tombstone",
    is_flag=True,
    help="Send null instead of empty values. Null deletes the key in a compacted topic.",
)
@click.option("--partition", type=Number(), help="Partition of every record.  [default: by key]")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Codec of the batches.  [default: none]",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    help="When a record counts as sent: when it is durable (all), appended (1), or at once (0).  [default: all]",
)
@click.option("--txn", metavar="ID", help="Send all records in one transaction of this transactional id.")
@json_option
@bootstrap_option
def produce(
    topic: str,
    value: str | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    tombstone: bool,
    partition: int | None,
    compression: str | None,
    acks: str | None,
    txn: str | None,
    as_json: bool,
    bootstrap: str,
) -> int:
    """Write records to TOPIC. Each line of stdin is the value of a record.

    \b
    echo 'hello' | oncelog produce orders
    oncelog produce orders --key alice --value '42 apples'
    oncelog produce orders --key-separator : < orders.txt        lines such as alice:42 apples
    oncelog produce orders --key alice --tombstone --value ''    delete the key of a compacted topic
    oncelog produce orders --txn import-1 < orders.txt           all lines in one transaction
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator cannot be combined")
    if txn is not None and acks not in (None, "all"):
        raise click.UsageError("a transaction needs --acks all")
    if key_separator == "":
        raise click.BadParameter("is empty", param_hint="--key-separator")
    fixed = None if key is None else bytes_of(key)
    separator = None if key_separator is None else bytes_of(key_separator)
    pairs = [_header(header) for header in headers]

    async def work() -> int:
        from ..client.producer import Producer
        from ..protocol.errors import KafkaError

        settings: dict[str, object] = {
            "max_block_ms": PATIENCE_MS,
            **client_settings(bootstrap, "producer"),
            "transactional_id": txn,
            "transactional_group_id": None,
        }
        if compression is not None:
            settings["compression_type"] = compression
        if acks is not None:
            settings["acks"] = acks
            if acks != "all":
                settings["enable_idempotence"] = False
        with Progress("records sent") as progress:
            await _check_topic(bootstrap, topic)
            async with Producer(settings) as producer, _transaction(producer, txn):
                lines = _LinesSent()
                try:
                    async for line in _lines(value, producer.config.max_request_size):
                        record_key, text = _split(line, fixed, separator)
                        content = None if tombstone and not text else text
                        delivery = await producer.enqueue(
                            topic, content, key=record_key, partition=partition, headers=pairs
                        )
                        lines.add(delivery)
                        if lines.sent % PROGRESS_EVERY == 0:
                            progress.show(lines.sent)
                            await lines.written(except_for=LINES_PENDING)
                    await lines.written(except_for=0)
                except KafkaError as error:
                    if value is not None:
                        raise
                    with contextlib.suppress(KafkaError):
                        await producer.flush()
                    raise click.ClickException(lines.failure(error, in_transaction=txn is not None)) from error
        if as_json:
            print_json({"topic": topic, "records": lines.sent})
        elif sys.stderr.isatty() or value is None:
            click.echo(f"{lines.sent} record{'' if lines.sent == 1 else 's'} written to {topic}.", err=True)
        return 0

    return run(work())


class _LinesSent:
    """The lines that the producer has accepted. Those whose outcome is not known yet are kept in order."""

    def __init__(self) -> None:
        self.sent = 0
        self._pending: deque[Delivery] = deque()

    def add(self, delivery: Delivery) -> None:
        """Add the next line. Raises KafkaError if one of the lines so far is known to have failed."""
        self.sent += 1
        pending = self._pending
        pending.append(delivery)
        while pending and pending[0].done():
            pending[0].result()
            pending.popleft()

    async def written(self, *, except_for: int) -> None:
        """Wait until all but `except_for` lines are written. Raises KafkaError if one has failed."""
        while len(self._pending) > except_for:
            await self._pending[0]
            self._pending.popleft()

    def failure(self, error: KafkaError, *, in_transaction: bool) -> str:
        """Return the message that says which lines are written, and why the first of the others is not.

        `error` is the reason why the next line was not sent. If a line in this object has failed, the message gives the
        reason of that failure instead. For a transaction, the message names the line that was refused first, if that
        line is known.
        """
        settled = self.sent - len(self._pending)
        failures = {
            number: failed
            for number, delivery in enumerate(self._pending, settled + 1)
            if (failed := _failure_of(delivery)) is not None
        }
        written = self.sent - len(failures)
        failures[self.sent + 1] = error
        if in_transaction:
            return f"{_cause(failures)}. The transaction is aborted: no line is written"
        first = next(iter(failures))
        what = f"line {first}: {failures[first]}"
        remedy = "use --txn ID to write either all lines or none"
        if not all(map(_is_refusal, failures.values())):
            known = f" At least {written} {_lines_are(written)} written." if written else ""
            return f"{what}.{known} Line {first} and later ones may or may not be written: {remedy}"
        if written_after := written - (first - 1):
            others = f"{written} other {_lines_are(written)} written, {written_after} of them after line {first}"
            return f"{what}. {others}: {remedy}"
        if first == 1:
            return f"{what}. No line is known to be written"
        known = f"the {written} {_lines_are(written, ' before it')} known to be written"
        return f"{what}. Only {known}: continue with line {first}, or {remedy}"


def _lines_are(count: int, which: str = "") -> str:
    """Return "line is" or "lines are", with `which` in between."""
    return f"line{which} is" if count == 1 else f"lines{which} are"


def _cause(failures: dict[int, KafkaError]) -> str:
    """Return why a transaction has failed. The text names the line that was refused first, if that line is known.

    `failures` maps the numbers of lines, in ascending order, to their failures. The earliest failure makes other lines
    fail. Some of those lines get an AbortableError with the code and message of the earliest failure. Others have
    errors of their own, for example because a batch that is too large is not split any more.
    """
    from ..client.errors import AbortableError

    refused = {number: error for number, error in failures.items() if _is_refusal(error)}
    errors = [*failures.values()]
    cause = next((error for error in errors if isinstance(error, AbortableError)), None)
    reasons = {(error.code, error.message) for error in ([*refused.values()] if cause is None else [cause])}
    # A record that was not sent any more may have an AbortableError with the code and message of the refusal.
    for number, error in sorted(refused.items(), key=lambda item: isinstance(item[1], AbortableError)):
        if reasons == {(error.code, error.message)}:
            return f"line {number}: {error}"
    return str(cause or errors[0])


def _is_refusal(error: KafkaError) -> bool:
    """Return whether an error means that the client or the broker has refused the record, so that it is not written."""
    from ..client.errors import AuthorizationError, InvalidTopicError, RecordTooLargeError
    from ..protocol.errors import ErrorCode

    return isinstance(error, RecordTooLargeError | AuthorizationError | InvalidTopicError) or error.code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
    )


def _failure_of(delivery: Delivery) -> KafkaError | None:
    """Return why a line is not known to be written, or None if it is written."""
    from ..protocol.errors import KafkaError

    try:
        delivery.result()
    except KafkaError as error:
        return error
    return None


async def _check_topic(bootstrap: str, topic: str) -> None:
    """Raise ClickException if the topic does not exist and the brokers do not create topics.

    Without this check, the producer would wait `max_block_ms` for the topic before it fails.
    """
    from ..client.errors import AuthorizationError, InvalidTopicError, UnknownTopicError, UnsupportedVersionError
    from ..client.values import TopicPartition
    from ..protocol.errors import ErrorCode

    async with connect_admin(bootstrap) as admin:
        try:
            await admin.describe_topics([topic])
        except InvalidTopicError as missing:
            if missing.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        except AuthorizationError:
            return  # the producer reports the missing permission
        else:
            return
        try:
            if await _creates_topics(admin):
                return
        except (AuthorizationError, UnsupportedVersionError):
            return
        try:
            # The client repeats this request, because a single broker may have outdated metadata.
            await admin.list_offsets({TopicPartition(topic, 0): -1})
        except UnknownTopicError:
            raise click.ClickException(
                f"UNKNOWN_TOPIC_OR_PARTITION: topic {topic} does not exist, and the brokers create no topics"
                f" (auto.create.topics.enable=false). Create it with `oncelog topic create {topic}`"
            ) from None


async def _creates_topics(admin: Admin) -> bool:
    from ..client.admin import ConfigResource, ResourceType

    broker = ConfigResource(ResourceType.BROKER, str((await admin.describe_cluster()).brokers[0].id))
    setting = (await admin.describe_configs([broker]))[broker].get("auto.create.topics.enable")
    return setting is None or setting.value != "false"


def _header(text: str) -> tuple[str, bytes]:
    name, equals, content = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, bytes_of(content)


def _split(line: bytes, key: bytes | None, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return key, line
    head, match, tail = line.partition(separator)
    return (head, tail) if match else (None, line)


@contextlib.asynccontextmanager
async def _transaction(producer: Producer, txn: str | None) -> AsyncIterator[None]:
    if txn is None:
        yield
        return
    async with producer.transaction():
        yield


async def _lines(value: str | None, limit: int) -> AsyncIterator[bytes]:
    """Yield the value, or the lines of stdin. Raises RecordTooLargeError for an unfinished line above the limit."""
    import asyncio

    if value is not None:
        yield bytes_of(value)
        return
    # A daemon thread reads: a regular file cannot be awaited, and a read from a terminal must not delay the exit.
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[bytes] | BaseException | None] = asyncio.Queue(LINES_AHEAD)

    def put(item: list[bytes] | BaseException | None) -> None:
        adding = queue.put(item)
        try:
            added = asyncio.run_coroutine_threadsafe(adding, loop)
        except RuntimeError:  # the event loop is closed
            adding.close()  # without this, Python warns that the coroutine never ran
            raise
        added.result()

    thread = threading.Thread(target=_read_lines, args=(sys.stdin.buffer, limit, put), daemon=True)
    thread.start()
    while (lines := await queue.get()) is not None:
        if isinstance(lines, BaseException):
            raise lines
        for line in lines:
            yield line


def _read_lines(source: IO[bytes], limit: int, put: Callable[[list[bytes] | BaseException | None], None]) -> None:
    import concurrent.futures

    from ..protocol.errors import KafkaError

    # put() fails when the event loop is closed, because the command has ended.
    with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):
        try:
            descriptor = source.fileno()
            for lines in _split_lines(iter(lambda: os.read(descriptor, CHUNK), b""), limit):
                put([line.removesuffix(b"\r") for line in lines])
        except (OSError, KafkaError) as error:
            put(error)  # ends the command
        else:
            put(None)


def _split_lines(chunks: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Yield the lines that end in each chunk, and the last line. Raises RecordTooLargeError.

    The error is raised when an unfinished line has more than `limit` bytes, so that no more of it is kept.
    """
    from ..client.errors import RecordTooLargeError
    from ..protocol.errors import ErrorCode

    pieces: list[bytes] = []
    size = 0
    for chunk in chunks:
        head, newline, tail = chunk.partition(b"\n")
        pieces.append(head)
        size += len(head)
        if newline:
            *lines, rest = tail.split(b"\n")
            yield [b"".join(pieces), *lines]
            pieces, size = [rest], len(rest)
        if size > limit:
            raise RecordTooLargeError(
                ErrorCode.MESSAGE_TOO_LARGE, f"the line is longer than max.request.size = {limit}"
            )
    if size:
        yield [b"".join(pieces)]
