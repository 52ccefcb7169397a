"""`oncelog serve` as a process: its ready line, its end, and what it says when it can't start."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from oncelog.cli.environment import Variable
from oncelog.cli.main import oncelog as commands
from support.broker import BrokerProcess, StartFailed
from support.wire import Wire

pytestmark = pytest.mark.oncelog_only(reason="is about the oncelog serve command")

ONCELOG = (sys.executable, "-P", "-m", "oncelog.cli")


def oncelog(*arguments: str, timeout: float = 30, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ONCELOG, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ | variables,
    )


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("oncelog serve: ")
    for word in words:
        assert word in last
    assert "Traceback" not in done.stderr


def connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def serving(directory: Path, *prefix: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `oncelog serve` with its log in `directory`/log. Yield its process and the address in its ready line."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*prefix, *ONCELOG, "serve", "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        word, address = process.stdout.readline().split()
        assert word == "ready"
        assert connects(address)
        yield process, address
    finally:
        process.kill()
        process.communicate()


def assert_clean_end(directory: Path, process: subprocess.Popen[str], address: str) -> None:
    rest, _ = process.communicate(timeout=20)
    assert (process.returncode, rest) == (0, "")
    assert not connects(address)
    assert '"event": "stopped"' in (directory / "log").read_text()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_port_0_is_any_free_port_and_a_signal_is_a_clean_end(tmp_path: Path, end: signal.Signals) -> None:
    with serving(tmp_path) as (process, address):
        process.send_signal(end)
        assert_clean_end(tmp_path, process, address)


def test_a_broker_that_runs_under_nohup_survives_its_terminal(tmp_path: Path) -> None:
    with serving(tmp_path, "nohup") as (process, address):
        process.send_signal(signal.SIGHUP)
        with Wire(address) as wire:  # a broker that stops does not answer all of its requests
            wire.create_topic("t")
        process.send_signal(signal.SIGTERM)
        assert_clean_end(tmp_path, process, address)


def test_sigterm_is_a_clean_end_and_the_port_is_kept_over_restarts(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    with broker:
        address = broker.address
        assert connects(address)
        broker.restart()
        assert broker.address == address
        assert connects(address)
        pid = broker.pid
        broker.kill9()
        assert not connects(address)
        broker.start()
        assert broker.pid != pid
        assert broker.terminate() == 0
    events = [json.loads(line)["event"] for line in broker.log.read_text().splitlines() if line.startswith("{")]
    assert events.count("stopped") == 2
    assert events.count("ready") in (2, 3), "a broker that is killed may not have written the event yet"


def test_second_broker_on_a_data_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        refused(
            oncelog("serve", "--data-dir", str(broker.data_dir), "--listen", "127.0.0.1:0"), 1, str(broker.data_dir)
        )


def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(oncelog("serve", "--data-dir", str(tmp_path), "--listen", address), 1, address, "in use")


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("nohost.invalid", "Use a host name or an IP address of this machine in `listeners`"),
        ("192.0.2.1", "Use a host name or an IP address of this machine in `listeners`"),
        ("a" * 64, "Correct the host in `listeners`"),
    ],
)
def test_a_host_that_is_not_of_this_machine_is_refused_with_the_remedy(tmp_path: Path, host: str, remedy: str) -> None:
    address = f"{host}:0"
    done = oncelog("serve", "--data-dir", str(tmp_path), "--listen", address)
    refused(done, 1, f"Cannot listen on {address}: ", remedy)
    assert "uses the port" not in done.stderr


def test_newer_data_directory_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        pass
    properties = broker.data_dir / "meta.properties"
    text = properties.read_text()
    level = next(line for line in text.splitlines() if "level" in line.partition("=")[0])
    properties.write_text(text.replace(level, level.partition("=")[0] + "=999"))
    refused(oncelog("serve", "--data-dir", str(broker.data_dir), "--listen", "127.0.0.1:0"), 1, "999")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--set", "no.such.setting=1"), "no.such.setting"),
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "num.partitions"), "NAME=VALUE|name=value"),
        (("--set", "default.replication.factor=3"), "default.replication.factor"),
        (("--listen", "nonsense"), "listeners"),
        (("--config", "/no/such/file.toml"), "/no/such/file.toml"),
    ],
)
def test_setting_that_can_not_be_is_named(tmp_path: Path, arguments: tuple[str, ...], word: str) -> None:
    done = oncelog("serve", "--data-dir", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert any(each in done.stderr for each in word.split("|"))
    assert "Traceback" not in done.stderr


def test_unknown_variable_is_named_and_the_clients_own_is_not(tmp_path: Path) -> None:
    refused(oncelog("serve", "--data-dir", str(tmp_path), ONCELOG_NO_SUCH="1"), 2, "ONCELOG_NO_SUCH")
    with BrokerProcess(tmp_path, environment=os.environ | dict.fromkeys(Variable, "127.0.0.1:1")) as broker:
        assert connects(broker.address)


def test_every_variable_of_another_command_is_known_to_serve() -> None:
    read = set(variables(commands, click.Context(commands)))
    assert {"ONCELOG_BOOTSTRAP", "ONCELOG_HTTP_CA_FILE", "ONCELOG_HTTP_USER"} <= read
    assert read == set(Variable)


def variables(command: click.Command, context: click.Context) -> Iterator[str]:
    """The environment variables that set options of a command and of its subcommands, or that their help names."""
    for option in command.params:
        if isinstance(option, click.Option):
            yield from [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
            yield from re.findall(r"\$(ONCELOG_[A-Z_]+)", option.help or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from variables(inner, context)


def test_settings_come_from_file_then_environment_then_flags(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('durability = "no such"\n[num]\npartitions = 0\n')
    done = oncelog("serve", "--config", str(config), "--data-dir", str(tmp_path / "data"), ONCELOG_NUM_PARTITIONS="3")
    assert done.returncode == 2
    assert "durability" in done.stderr or "num.partitions" in done.stderr
    config.write_text('durability = "os"\n[num]\npartitions = 2\n')
    with BrokerProcess(
        tmp_path,
        f"--config={config}",
        "--set=num.partitions=4",
        environment=os.environ | {"ONCELOG_NUM_PARTITIONS": "3"},
    ) as broker:
        assert connects(broker.address)


def test_process_that_can_not_start_tells_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"no\.such"):
        BrokerProcess(tmp_path, "--set", "no.such=1").start()


def test_help_teaches_and_needs_no_broker() -> None:
    for arguments in (
        (),
        ("serve",),
        ("topic",),
        ("topic", "create"),
        ("produce",),
        ("consume",),
        ("group",),
        ("log",),
    ):
        done = oncelog(*arguments, "--help")
        assert done.returncode == 0
        assert "oncelog " in done.stdout.partition("Options:")[0].partition("\n")[2], f"no example in {arguments}"
