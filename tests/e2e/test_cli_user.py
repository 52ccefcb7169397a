"""`oncelog user hash` and `oncelog serve --add-scram`: from a password to a login."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from oncelog.auth.scram_users import parse_scram_user
from oncelog.demo.processes import free_port
from support.broker import BrokerProcess
from support.command_line import run_command
from support.raw_connection import RawConnection
from support.sasl import log_in

pytestmark = pytest.mark.oncelog_only(reason="is about the broker's own commands")


def oncelog(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, lines=stdin)


def test_a_password_of_stdin_is_hashed() -> None:
    done = oncelog("user", "hash", "alice", "--mechanism", "SCRAM-SHA-256", stdin="secret\n")
    assert (done.returncode, done.stderr) == (0, "")
    name, hashed = parse_scram_user(done.stdout)
    assert (name, hashed.mechanism.name, hashed.matches("secret")) == ("alice", "SCRAM-SHA-256", True)


@pytest.mark.parametrize(("name", "stdin", "message"), [("#x", "secret\n", "user name"), ("alice", "\n", "is empty")])
def test_a_user_without_name_or_password_is_refused(name: str, stdin: str, message: str) -> None:
    done = oncelog("user", "hash", name, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


async def code(address: str, password: str) -> int:
    async with RawConnection(address) as wire:
        return (await log_in(wire, "SCRAM-SHA-512", "alice", password)).error_code


async def test_an_added_user_logs_in_and_keeps_the_password(tmp_path: Path) -> None:
    first, second = (oncelog("user", "hash", "alice", stdin=f"{word}\n").stdout.strip() for word in ("first", "second"))
    address = f"127.0.0.1:{free_port()}"
    for line in (first, second):
        with BrokerProcess(tmp_path, "--listen", f"SASL_PLAINTEXT://{address}", "--add-scram", line):
            assert [await code(address, "first"), await code(address, "second")] == [0, 58]


def test_a_user_that_cannot_be_read_is_refused_without_being_shown(tmp_path: Path) -> None:
    done = oncelog("serve", "--data-dir", str(tmp_path), "--add-scram", "alice:secret")
    assert done.returncode == 2
    assert "--add-scram: value 1 is not a user. Write NAME:HASH" in done.stderr
    assert "secret" not in done.stderr
