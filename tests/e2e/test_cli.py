"""The commands that talk to a broker, as users run them: one process per command."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from oncelog import Producer
from oncelog.cli.produce import PROGRESS_EVERY
from oncelog.client.producer.partitioner import partition_for_key
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from support.broker import BrokerProcess
from support.command_line import ONCELOG, Run, command_line, done, done_json, failed, run_command
from support.proxy import FaultProxy
from support.wire import eventually


@pytest.fixture
def oncelog(bootstrap: str) -> Run:
    """`oncelog("topic", "list")` runs the command against the session's broker; `lines` go to its stdin."""
    return command_line(bootstrap)


def read_all(oncelog: Run, topic: str, *options: str) -> list[str]:
    return done(oncelog("consume", topic, "--from-beginning", "--until-end", *options)).splitlines()


def keys_of_two_partitions() -> tuple[str, str]:
    """Return keys that go to the partitions 0 and 1 of two."""
    first, second = (next(key for key in "abcdefgh" if partition_for_key(key.encode(), 2) == one) for one in (0, 1))
    return first, second


async def produce_with_errors(
    bootstrap: str, code: ErrorCode, *arguments: str, lines: str
) -> subprocess.CompletedProcess[str]:
    """Run `oncelog produce` while every response to Produce has this error code for partition 1."""

    def change(response: ProduceResponse) -> None:
        for result in response.responses[0].partition_responses:
            if result.index == 1:
                result.error_code = code

    async with FaultProxy(bootstrap) as proxy:
        proxy.change(ProduceRequest, change, times=1_000_000)
        oncelog = command_line(proxy.address)
        return await asyncio.to_thread(oncelog, "produce", *arguments, "--key-separator", ":", lines=lines)


# ---- topics


def test_topic_from_creation_to_deletion(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("orders")
    assert done(oncelog("topic", "create", topic, "--partitions", "3", "--config", "retention.ms=60000")) == (
        f"Created topic {topic}.\n"
    )
    eventually(
        lambda: topic in done(oncelog("topic", "list")).splitlines()
    )  # Kafka's broker learns of it a little later
    assert "3 partition(s)" in done(oncelog("topic", "describe", topic))
    failed(oncelog("topic", "create", topic), "TOPIC_ALREADY_EXISTS")
    assert "exists already" in done(oncelog("topic", "create", topic, "--if-not-exists"))
    assert done(oncelog("topic", "delete", topic)) == f"Deleted topic {topic}.\n"
    eventually(lambda: topic not in done(oncelog("topic", "list")).splitlines())
    failed(oncelog("topic", "delete", topic), "UNKNOWN_TOPIC_OR_PARTITION")
    assert "no topic" in done(oncelog("topic", "delete", topic, "--if-exists"))


def test_internal_topics_are_shown_on_request(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("read-by-a-group")
    done(oncelog("produce", topic, "--value", "x"))
    done(oncelog("consume", topic, "--group", topic, "--from-beginning", "--max-messages", "1"))
    assert "__consumer_offsets" not in done(oncelog("topic", "list")).splitlines()
    assert "__consumer_offsets" in done(oncelog("topic", "list", "--internal")).splitlines()


def test_bad_topic_name_and_setting_are_refused_in_one_sentence(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    failed(oncelog("topic", "create", "no good name"), "INVALID_TOPIC")
    failed(oncelog("topic", "create", fresh_name("t"), "--config", "retention.ms=soon"), "INVALID_CONFIG")
    assert oncelog("topic", "create", fresh_name("t"), "--config", "retention.ms").returncode == 2


# ---- records


def test_lines_come_back_in_order(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("lines")
    lines = [f"line {number}" for number in range(5000)] + ["", "übermut", "last without newline"]
    result = oncelog("produce", topic, lines="\n".join(lines))
    assert done(result) == ""
    assert f"{len(lines)} records written to {topic}." in result.stderr
    assert done_json(oncelog("produce", fresh_name("other"), "--json", lines="a\nb\n"))["records"] == 2
    assert read_all(oncelog, topic) == lines


def test_empty_values_are_null_on_demand(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("deletions")
    done(oncelog("produce", topic, "--key-separator", ":", lines="a:1\na:\n"))
    done(oncelog("produce", topic, "--key-separator", ":", "--tombstone", lines="b:1\nb:\n"))
    done(oncelog("produce", topic, "--key", "c", "-Z", "--value", ""))
    records = [json.loads(line) for line in read_all(oncelog, topic, "--format", "json")]
    found = [(record["key"], record["value"]) for record in records]
    assert found == [("a", "1"), ("a", ""), ("b", "1"), ("b", None), ("c", None)]


def test_keys_headers_and_partition_show_in_json(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("keyed")
    done(oncelog("topic", "create", topic, "--partitions", "2"))
    done(
        oncelog("produce", topic, "--key-separator", ":", "--partition", "1", "--header", "h=1", lines="a:1:2\nplain\n")
    )
    done(oncelog("produce", topic, "--key", "k", "--value", "v", "--partition", "0"))
    records = [json.loads(line) for line in read_all(oncelog, topic, "--format", "json")]
    timestamps = [record.pop("timestamp") for record in records]
    assert all(timestamp > 1_600_000_000_000 for timestamp in timestamps)
    headers = [{"name": "h", "value": "1"}]
    assert sorted(records, key=lambda record: (record["partition"], record["offset"])) == [
        {"topic": topic, "partition": 0, "offset": 0, "key": "k", "value": "v"},
        {"topic": topic, "partition": 1, "offset": 0, "key": "a", "value": "1:2", "headers": headers},
        {"topic": topic, "partition": 1, "offset": 1, "key": None, "value": "plain", "headers": headers},
    ]
    assert read_all(oncelog, topic, "--partition", "1", "--format", "key-value") == ["a\t1:2", "null\tplain"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(oncelog: Run, fresh_name: Callable[[str], str], codec: str) -> None:
    topic = fresh_name(codec)
    lines = [f"compressed {number}" for number in range(100)]
    done(oncelog("produce", topic, "--compression", codec, lines="\n".join(lines)))
    assert read_all(oncelog, topic) == lines


def test_transaction_is_all_or_nothing(oncelog: Run, bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("txn")
    done(oncelog("produce", topic, "--txn", topic, lines="one\ntwo\n"))
    assert read_all(oncelog, topic) == ["one", "two"]
    process = subprocess.Popen(
        [*ONCELOG, "produce", topic, "--txn", topic, "--bootstrap", bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"never\n")
        process.stdin.flush()
        while "never" not in read_all(oncelog, topic, "--isolation", "read_uncommitted"):
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    done(oncelog("produce", topic, "--txn", topic, lines="three\n"))
    assert read_all(oncelog, topic) == ["one", "two", "three"]


def test_reading_stops_where_it_is_told(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("stops")
    done(oncelog("produce", topic, lines="\n".join("abcdef")))
    consume = ("consume", topic)
    assert done(oncelog(*consume, "--from-beginning", "--max-messages", "2")) == "a\nb\n"
    assert done(oncelog(*consume, "--partition", "0", "--offset", "4", "--until-end")) == "e\nf\n"
    assert done(oncelog(*consume, "--timeout", "0.5")) == ""
    assert done(oncelog(*consume, "--from-beginning", "--timeout", "1")) == "a\nb\nc\nd\ne\nf\n"


def test_group_goes_on_where_it_stopped(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic, group = fresh_name("topic"), fresh_name("group")
    done(oncelog("produce", topic, lines="\n".join("abcdef")))
    consume = ("consume", topic, "--group", group, "--from-beginning")
    assert done(oncelog(*consume, "--max-messages", "4")) == "a\nb\nc\nd\n"
    assert done(oncelog(*consume, "--max-messages", "2")) == "e\nf\n"
    assert done(oncelog(*consume, "--timeout", "1")) == ""
    assert any(line.startswith(f"{group}\t") for line in done(oncelog("group", "list")).splitlines())
    described = done(oncelog("group", "describe", group))
    assert topic in described
    assert "0 member(s)" in described
    failed(oncelog("group", "describe", fresh_name("nobody")), "there is no group")


async def test_reading_begins_at_a_time_or_some_records_before_the_end(
    oncelog: Run, bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("starts")
    done(oncelog("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=-1"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(8):
            await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000_000_000_000 + number * 1000)
        await producer.send(topic, b"a", partition=1, timestamp_ms=1_000_000_000_000)
    consume = ("consume", topic, "--until-end", "--format", "%s ")
    assert done(oncelog(*consume, "--from-time", "2001-09-09T01:46:45Z")) == "5 6 7 "
    assert done(oncelog(*consume, "--from-time", "1000000007000", "--partition", "0")) == "7 "
    assert done(oncelog(*consume, "--from-time", "1h")) == ""
    assert done(oncelog(*consume, "--tail", "2", "--partition", "0")) == "6 7 "
    assert sorted(done(oncelog(*consume, "--tail", "3")).split()) == ["5", "6", "7", "a"]
    assert done(oncelog("consume", topic, "--partition", "0", "--tail", "1", "--max-messages", "1")) == "7\n"


async def test_tail_counts_records_and_not_what_else_takes_offsets(
    oncelog: Run, bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("tail")
    done(oncelog("topic", "create", topic, "--partitions", "1"))
    async with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        await producer.init_transactions()
        for number in range(12):
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % number)
            await (producer.commit_transaction() if number % 4 == 0 else producer.abort_transaction())
    tail = ("consume", topic, "--until-end", "--tail")
    assert done(oncelog(*tail, "1")).split() == ["8"]
    assert done(oncelog(*tail, "2")).split() == ["4", "8"]
    assert done(oncelog(*tail, "9")).split() == ["0", "4", "8"]
    assert done(oncelog(*tail, "2", "--isolation", "read_uncommitted")).split() == ["10", "11"]


def test_records_are_printed_by_a_template(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("template")
    done(oncelog("produce", topic, "--key", "k", "--value", "v", "--header", "h=1", "--partition", "0"))
    assert done(oncelog("consume", topic, "--tail", "1", "--until-end", "--format", r"%t/%p/%o %k=%s (%S) %h\n")) == (
        f"{topic}/0/0 k=v (1) h=1\n"
    )
    (record,) = [json.loads(line) for line in read_all(oncelog, topic, "--json")]
    assert record["headers"] == [{"name": "h", "value": "1"}]


def test_a_line_that_does_not_end_is_refused_before_it_fills_the_memory(
    bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run
) -> None:
    topic = fresh_name("endless")
    arguments = [*ONCELOG, "produce", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"first\nsecond\n" + b"x" * 2_000_000)
            process.stdin.flush()
        assert process.wait(60) == 1, "although stdin is still open"
        reported = process.stderr.read()
        assert b"line 3: MESSAGE_TOO_LARGE: the line is longer than max.request.size = 1048576" in reported
        assert b"Only the 2 lines before it are known to be written: continue with line 3, or use --txn" in reported
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    assert read_all(oncelog, topic) == ["first", "second"]


def test_the_first_failure_ends_a_command_and_its_error_says_what_is_written(
    bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run
) -> None:
    topic = fresh_name("refused")
    done(oncelog("topic", "create", topic, "--config", "max.message.bytes=1000"))
    arguments = [*ONCELOG, "produce", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"first\n{'x' * 2000}\n")
            while process.poll() is None:  # stdin stays open
                process.stdin.write("more\n" * 100)
                process.stdin.flush()
        assert process.wait(60) == 1
        reported = process.stderr.read()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    assert reported.startswith("oncelog: line 2: MESSAGE_TOO_LARGE: ")
    lines = read_all(oncelog, topic)
    assert lines[0] == "first"
    if len(lines) > 1:
        assert f"{len(lines)} other lines are written, {len(lines) - 1} of them after line 2: use --txn ID" in reported
    else:
        assert "Only the 1 line before it is known to be written" in reported


async def test_lines_that_may_be_written_are_not_to_be_sent_again(
    bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run
) -> None:
    topic = fresh_name("doubtful")
    done(oncelog("topic", "create", topic, "--partitions", "2"))
    first, second = keys_of_two_partitions()
    # The broker has written the record of partition 1, but its response does not say so.
    lines = f"{first}:a\n{second}:b\n"
    result = await produce_with_errors(bootstrap, ErrorCode.UNKNOWN_SERVER_ERROR, topic, lines=lines)
    failed(
        result,
        "oncelog: line 2: UNKNOWN_SERVER_ERROR",
        "At least 1 line is written. Line 2 and later ones may or may not be written: use --txn ID",
    )
    assert "continue with line" not in result.stderr
    assert sorted(read_all(oncelog, topic)) == ["a", "b"], "line 2 would be written twice"


async def test_a_failed_transaction_names_the_line_that_was_refused(
    bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run
) -> None:
    topic = fresh_name("refused")
    done(oncelog("topic", "create", topic, "--partitions", "2", "--config", "max.message.bytes=1000"))
    refused, waiting = keys_of_two_partitions()
    # Line 1 would be sent again, if line 2 were not refused meanwhile.
    lines = f"{waiting}:first\n{refused}:{'x' * 2000}\n"
    result = await produce_with_errors(bootstrap, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic, "--txn", topic, lines=lines)
    failed(result, "oncelog: line 2: MESSAGE_TOO_LARGE: ", "The transaction is aborted: no line is written")


def test_a_transaction_that_is_fenced_names_no_line(
    bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run
) -> None:
    topic = fresh_name("fenced")
    done(oncelog("topic", "create", topic, "--partitions", "1"))
    with subprocess.Popen(
        [*ONCELOG, "produce", topic, "--txn", topic, "--bootstrap", bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        while not read_all(oncelog, topic, "--isolation", "read_uncommitted"):
            assert process.poll() is None
        done(oncelog("txn", "fence", topic, "--yes"))
        _, reported = process.communicate("second\n", timeout=60)
    assert process.returncode == 1
    assert re.match(r"oncelog: [A-Z_]+: .*The transaction is aborted: no line is written", reported), reported


def test_a_failed_transaction_names_the_line_and_writes_none(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("refused")
    done(oncelog("topic", "create", topic, "--config", "max.message.bytes=1000"))
    result = oncelog("produce", topic, "--txn", topic, lines=f"a\nb\n{'x' * 2000}\nc\n")
    failed(result, "oncelog: line 3: ", "The transaction is aborted: no line is written")
    assert read_all(oncelog, topic) == []


def test_unknown_partition_and_contradicting_options(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("t")
    done(oncelog("produce", topic, "--value", "x"))
    failed(oncelog("consume", topic, "--partition", "7"), f"topic {topic} has no partition 7")
    for arguments in (
        ("consume", topic, "--partition", "0", "--group", "g"),
        ("consume", topic, "--offset", "0"),
        ("consume", topic, "--tail", "1", "--from-beginning"),
        ("consume", topic, "--from-time", "1h", "--group", "g"),
        ("consume", topic, "--format", "xml"),
        ("consume", topic, "--format", "value", "--json"),
        ("produce", topic, "--key", "k", "--key-separator", ":"),
        ("produce", topic, "--txn", "t", "--acks", "1"),
        ("produce", topic, "--value", "v", "--header", "nonsense"),
    ):
        assert oncelog(*arguments).returncode == 2


def test_interrupt_ends_a_reader_quietly(bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run) -> None:
    topic = fresh_name("interrupted")
    done(oncelog("produce", topic, "--value", "first"))
    process = subprocess.Popen(
        [*ONCELOG, "consume", topic, "--from-beginning", "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.strip()) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_closes_the_clients_of_a_command(
    bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run, number: signal.Signals
) -> None:
    topic, group = fresh_name("terminated"), fresh_name("group")
    # Under nohup, tests ignore SIGHUP, and so would the command.
    default = partial(signal.signal, number, signal.SIG_DFL)
    done(oncelog("produce", topic, "--value", "first"))
    consumer = [*ONCELOG, "consume", topic, "--from-beginning", "--group", group, "--bootstrap", bootstrap]
    with subprocess.Popen(
        consumer, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        process.send_signal(number)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 128 + number
    assert done_json(oncelog("group", "describe", group, "--json"))["members"] == []

    producer = [*ONCELOG, "produce", topic, "--txn", topic, "--bootstrap", bootstrap]
    with subprocess.Popen(
        producer, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default
    ) as process:
        assert process.stdin is not None
        process.stdin.write("never\n")
        process.stdin.flush()
        while "never" not in read_all(oncelog, topic, "--isolation", "read_uncommitted"):
            assert process.poll() is None
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 128 + number
    state = done_json(oncelog("txn", "describe", topic, "--json"))
    assert "CompleteAbort" in json.dumps(state)


def test_a_command_under_nohup_ignores_a_hangup(bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run) -> None:
    topic = fresh_name("nohup")
    done(oncelog("produce", topic, "--value", "first"))
    consumer = ["nohup", *ONCELOG, "consume", topic, "--from-beginning", "--max-messages", "2"]
    with subprocess.Popen([*consumer, "--bootstrap", bootstrap], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        process.send_signal(signal.SIGHUP)
        done(oncelog("produce", topic, "--value", "second"))
        assert process.communicate(timeout=30)[0] == "second\n"
    assert process.returncode == 0


def test_closed_pipe_ends_a_reader_quietly(bootstrap: str, fresh_name: Callable[[str], str], oncelog: Run) -> None:
    topic = fresh_name("piped")
    done(oncelog("produce", topic, lines="\n".join(f"{number:0100}" for number in range(3000))))
    process = subprocess.Popen(
        [*ONCELOG, "consume", topic, "--from-beginning", "--until-end", "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"{0:0100}\n"
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(30) == 1


@pytest.mark.oncelog_only(reason="is about no broker at all")
def test_broker_that_is_not_there_is_named_in_time() -> None:
    commands = [("topic", "list"), ("produce", "t", "--value", "v"), ("consume", "t")]
    processes = [
        subprocess.Popen([*ONCELOG, *command, "--bootstrap", "127.0.0.1:1"], stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    for process in processes:
        _, errors = process.communicate(timeout=50)
        assert process.returncode == 1
        assert "Traceback" not in errors
        assert all("127.0.0.1:1" in line for line in errors.splitlines()), errors
        assert errors.splitlines()[-1].startswith("oncelog: ")


@pytest.mark.oncelog_only(reason="reads the data directory")
def test_log_dump_shows_what_was_produced(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("dumped")) as broker:
        done(run_command("produce", "orders", "--value", "42 apples", "--bootstrap", broker.address))
    (segment,) = broker.data_dir.glob("orders-*/00000000000000000000.log")
    assert "42 apples" in done(run_command("log", "dump", str(segment), "--records"))
    sound = run_command("log", "repair", str(broker.data_dir))
    assert (sound.returncode, "no damage" in sound.stdout) == (0, True), sound.stderr


@pytest.mark.oncelog_only(reason="damages the data directory")
def test_damaged_partition_is_repaired_after_saying_what_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    oncelog = run_command
    with BrokerProcess(tmp_path_factory.mktemp("damaged")) as broker:
        for line in ("one", "two", "three"):
            done(oncelog("produce", "orders", "--value", line, "--bootstrap", broker.address))
        data = str(broker.data_dir)
        failed(oncelog("log", "repair", data), data)  # the broker has it
        broker.terminate()

        (segment,) = broker.data_dir.glob("orders-0/*.log")
        content = bytearray(segment.read_bytes())
        content[content.index(b"two")] ^= 1
        segment.write_bytes(content)
        failed(oncelog("log", "dump", str(segment)), "wrong checksum")

        looked = oncelog("log", "repair", data, "--dry-run")
        assert looked.returncode == 1
        assert "orders-0" in looked.stdout
        assert "from offset 1 on" in looked.stdout
        assert segment.read_bytes() == content
        listed = oncelog("log", "repair", data, "--dry-run", "--json")
        (damage,) = json.loads(listed.stdout)["damages"]
        assert (damage["topic"], damage["partition"], damage["lost_from_offset"]) == ("orders", 0, 1)
        refused = oncelog("log", "repair", data, lines="n\n")
        assert refused.returncode == 130
        assert segment.read_bytes() == content
        assert "1 partition(s) repaired" in done(oncelog("log", "repair", data, "--yes"))
        assert "no damage" in done(oncelog("log", "repair", data))

        broker.start()
        read = oncelog("consume", "orders", "--from-beginning", "--until-end", "--bootstrap", broker.address)
        assert done(read) == "one\n"


# ---- where the output goes


def on_terminal(bootstrap: str, *arguments: str, stdin: Path | None = None) -> str:
    """What a command shows on a terminal of 200 columns, with its input from the terminal or a file."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    environment = os.environ | {"ONCELOG_BOOTSTRAP": bootstrap, "TERM": "xterm"}
    with open(stdin) if stdin else contextlib.nullcontext(theirs) as source:
        process = subprocess.Popen([*ONCELOG, *arguments], stdout=theirs, stderr=theirs, stdin=source, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the last process that had the terminal is gone
        while data := os.read(ours, 10_000):
            shown += data
    os.close(ours)
    assert process.wait(60) == 0, shown
    return shown.decode()


def test_tables_have_borders_on_a_terminal_and_tabs_in_a_pipe(
    oncelog: Run, bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("table")
    done(oncelog("topic", "create", topic, "--partitions", "2"))
    done(oncelog("produce", topic, "--value", "v", "--partition", "1"))
    done(oncelog("consume", topic, "--group", topic, "--from-beginning", "--max-messages", "1"))
    done(oncelog("produce", topic, "--txn", topic, "--value", "v", "--partition", "1"))
    described = done(oncelog("topic", "describe", topic)).splitlines()
    assert described[:2] == [f"{topic}: 2 partition(s)", "partition\tleader\tstart\tstable\tend"]
    assert described[2].split("\t")[2:] == ["0", "0", "0"]
    piped = [("topic", "describe", topic), ("group", "describe", topic), ("group", "list"), ("txn", "list")]
    for command in piped:
        out = done(oncelog(*command))
        assert out.isascii()
        assert topic in out
        assert "\t" in out
        shown = on_terminal(bootstrap, *command)
        assert "│" in shown
        assert topic in shown
    assert "protocol type" in on_terminal(bootstrap, "group", "list")
    assert "producer id" in on_terminal(bootstrap, "txn", "list")


def test_progress_is_shown_on_a_terminal(bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("x\n" * (2 * PROGRESS_EVERY))
    shown = on_terminal(bootstrap, "produce", fresh_name("progress"), stdin=lines)
    assert "1,000 records sent" in shown
    assert "2000 records written" in shown


@pytest.mark.oncelog_only(reason="needs a broker with nothing in it")
def test_an_empty_list_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        for command, words in (("topic", "no topics"), ("group", "no groups"), ("txn", "no transactional ids")):
            arguments = [*ONCELOG, command, "list", "--bootstrap", broker.address]
            result = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
            assert (result.returncode, result.stdout) == (0, "")
            assert words in result.stderr


async def test_a_tombstone_is_no_text(oncelog: Run, bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("tombstones")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send(topic, None, key=b"k", partition=0)
        await producer.send(topic, b"null", key=b"k", partition=0)
        await producer.send(topic, b"", key=b"k", partition=0)
    assert read_all(oncelog, topic) == ["<tombstone>", "null", ""]
    assert [json.loads(line)["value"] for line in read_all(oncelog, topic, "--format", "json")] == [None, "null", ""]


@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
def test_consume_does_not_wait_for_a_topic_that_is_not_there(
    oncelog: Run, bootstrap: str, fresh_name: Callable[[str], str], group: bool
) -> None:
    topic = fresh_name("nope")
    options = ["--group", topic] if group else []
    failed(
        oncelog("consume", topic, *options, timeout=9),
        f"topic {topic} does not exist",
        "oncelog topic create",
        "--wait",
    )
    assert topic not in done(oncelog("topic", "list")).splitlines(), "reading must not create it"
    waiting = subprocess.Popen(
        [*ONCELOG, "consume", topic, "--wait", "--from-beginning", "--max-messages", "1", *options],
        env=os.environ | {"ONCELOG_BOOTSTRAP": bootstrap},
        stdout=subprocess.PIPE,
        text=True,
    )
    done(oncelog("produce", topic, "--value", "at last"))
    out, _ = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, "at last\n")


@pytest.mark.oncelog_only(reason="needs a broker that creates no topics")
def test_produce_names_a_topic_that_is_not_there(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--set", "auto.create.topics.enable=false") as broker:
        arguments = [*ONCELOG, "produce", "nope", "--value", "v", "--bootstrap", broker.address]
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        failed(
            result,
            "UNKNOWN_TOPIC_OR_PARTITION: topic nope does not exist",
            "the brokers create no topics",
            "oncelog topic create nope",
        )
        assert "within" not in result.stderr, "it does not wait for the topic"
