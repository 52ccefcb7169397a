"""The commands with arguments that no request can carry, and with closed streams: one sentence, no traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from support.command_line import ONCELOG, Run, command_line, done, done_json, failed

NOT_UTF8 = "a\udcffb"
"""The bytes a, 0xff and b, as Python shows them to a program in its arguments."""
HUGE = "9" * 25


@pytest.fixture
def oncelog(bootstrap: str) -> Run:
    """`oncelog("topic", "list")` runs the command against the session's broker; `lines` go to its stdin."""
    return command_line(bootstrap)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create", "t", "--partitions", HUGE),
        ("topic", "create", "t", "--replication-factor", "40000"),
        ("topic", "add-partitions", "t", "--num", HUGE),
        ("topic", "trim", "t", "--before-offset", HUGE),
        ("produce", "t", "--partition", HUGE),
        ("consume", "t", "--partition", "0", "--offset", HUGE),
        ("consume", "t", "--tail", HUGE),
        ("consume", "t", "--max-messages", HUGE),
        ("consume", "t", "--timeout", "nan"),
        ("group", "reset", "g", "--to-offset", HUGE),
        ("txn", "fence", "i", "--timeout", "inf"),
        ("txn", "list", "--longer-than", "1e300"),
        ("txn", "list", "--producer-id", HUGE),
        ("txn", "hanging", "--older-than", "nan"),
        ("txn", "abort", "t", HUGE, "--start-offset", "0"),
        ("cluster", "config", "--broker", HUGE),
    ],
    ids=" ".join,
)
def test_a_number_that_no_request_can_carry_is_wrong_usage(oncelog: Run, arguments: tuple[str, ...]) -> None:
    failed(oncelog(*arguments), "Error: Invalid value for", arguments[-1] if arguments[-1] != "0" else HUGE, code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "describe", NOT_UTF8),
        ("topic", "create", "t", "--config", f"retention.ms={NOT_UTF8}"),
        ("group", "describe", NOT_UTF8),
        ("txn", "describe", NOT_UTF8),
        ("acl", "list", "--principal", f"User:{NOT_UTF8}"),
        ("produce", "t", "--value", "v", "--header", f"{NOT_UTF8}=1"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_name_that_is_not_utf8_is_wrong_usage(oncelog: Run, arguments: tuple[str, ...]) -> None:
    failed(oncelog(*arguments), "is not valid UTF-8", code=2)


def test_records_take_arguments_of_any_bytes(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("bytes")
    done(oncelog("produce", topic, "--value", NOT_UTF8, "--key", NOT_UTF8, "--header", f"h={NOT_UTF8}"))
    record = done_json(oncelog("consume", topic, "--from-beginning", "--until-end", "--json"))
    assert record["key_base64"] == record["value_base64"] == record["headers"][0]["value_base64"] == "Yf9i"


def test_an_empty_key_separator_is_wrong_usage(oncelog: Run) -> None:
    failed(oncelog("produce", "t", "--key-separator", "", lines="a\n"), "--key-separator", "is empty", code=2)


def test_a_time_before_1970_is_before_all_records(oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("old")
    done(oncelog("produce", topic, "--value", "v"))
    reset = ("group", "reset", fresh_name("g"), "--topic", topic, "--dry-run", "--json")
    for moment in ("1960-01-01", "99999999d"):
        plan = done_json(oncelog(*reset, "--to-time", moment))
        assert [each["new_offset"] for each in plan["partitions"]] == [0] * len(plan["partitions"])
        done(oncelog("topic", "trim", topic, "--before-time", moment, "--yes"))
    assert done(oncelog("consume", topic, "--from-time", "1960-01-01", "--until-end")) == "v\n"


def test_a_password_that_is_not_utf8_is_wrong_usage(bootstrap: str) -> None:
    result = subprocess.run(
        [*ONCELOG, "user", "set-password", "alice", "--bootstrap", bootstrap],
        input=b"\xff\xfe\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert b"Error: the password is not valid UTF-8" in result.stderr


def test_an_unknown_host_is_named_with_the_reason_of_the_resolver(oncelog: Run) -> None:
    result = oncelog("topic", "list", "--bootstrap", "host.invalid:9092")
    failed(result, "no connection to host.invalid:9092")
    assert "Unknown error" not in result.stderr


def closing(stream: str, bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a closed standard stream: `<&-`, `>&-` or `2>&-`."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}', "sh", *ONCELOG, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"ONCELOG_BOOTSTRAP": bootstrap},
    )


def test_closed_streams(bootstrap: str, oncelog: Run, fresh_name: Callable[[str], str]) -> None:
    topic, group = fresh_name("closed"), fresh_name("group")
    done(closing("2>&-", bootstrap, "produce", topic, "--value", "v"))
    assert topic in done(closing("<&- 2>&-", bootstrap, "topic", "list")).splitlines()
    for result in (
        closing(">&-", bootstrap, "topic", "list"),
        closing(">&-", bootstrap, "consume", topic, "--from-beginning", "--group", group, "--max-messages", "1"),
        closing("<&-", bootstrap, "produce", topic),
    ):
        assert (result.returncode, result.stderr) == (1, "oncelog: Bad file descriptor\n")
    # The record could not be printed, so its offset was not committed.
    reading = ("consume", topic, "--from-beginning", "--group", group, "--max-messages", "1")
    assert done(oncelog(*reading)) == "v\n"
