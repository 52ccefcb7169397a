"""`oncelog connect list`, `create` and so on, against a real worker; its metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.request import urlopen

import click
import pytest
from click.testing import CliRunner
from oncelog.cli.main import oncelog

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.process import StandaloneWorker

Names = Callable[[str], str]


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """Runs `oncelog connect` in this process against one worker."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, input: str | None = None) -> Done:
        result = CliRunner().invoke(
            oncelog, ["connect", *arguments], input=input, env={"ONCELOG_CONNECT_URL": self.url}, standalone_mode=False
        )
        if isinstance(result.exception, click.ClickException):  # which the entry point shows
            return Done(result.exception.exit_code, result.stdout, result.exception.format_message())
        if result.exception is not None:
            raise result.exception
        return Done(result.return_value or 0, result.stdout, result.stderr)

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        return json.loads(done.out)

    def until(self, wanted: Callable[[Any], bool], *arguments: str) -> Any:
        """Ask again until the answer is so."""
        while not wanted(answer := self.json(*arguments)):
            pass
        return answer


@pytest.fixture(scope="module")
def command(bootstrap: str) -> Iterator[Command]:
    """A worker in a thread with a loop of its own, as the commands block."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    worker = StandaloneWorker(
        {
            "bootstrap.servers": bootstrap,
            "listeners": "http://127.0.0.1:0",
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "exactly.once.source.support": "enabled",
            "group.id": "cli",
            "offset.storage.topic": "cli-offsets",
            "offset.storage.replication.factor": "1",
        }
    )
    asyncio.run_coroutine_threadsafe(worker.start(), loop).result(60)
    yield Command(worker.url)
    asyncio.run_coroutine_threadsafe(worker.stop(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def beats(tmp_path: Path, fresh_name: Names) -> tuple[str, Path]:
    name = fresh_name("beats")
    path = tmp_path / "beats.properties"
    path.write_text(f"name={name}\nconnector.class=HeartbeatSource\ntopic={name}\ninterval.ms=1\nlimit=5\n")
    return name, path


def test_a_connector_from_its_creation_to_its_end(command: Command, beats: tuple[str, Path], tmp_path: Path) -> None:
    name, path = beats
    assert command("validate", str(path)) == (0, "All settings are valid.\n", "")
    assert command("create", "--wait", str(path)) == (0, f"Created connector {name}.\n", "")
    assert [task["state"] for task in command.json("status", name)["tasks"]] == ["RUNNING"]
    command.until(lambda known: known["offsets"][:1] == [offset(5)], "offsets", name)
    assert command("offsets", name).out == '{"task":0}\t{"count":5}\n'
    assert f"{name}\tRUNNING\t1/1\tHeartbeatSource\n" in command("list").out
    assert command("status", name).out.splitlines()[0] == "part\tstate\tworker"
    assert command("pause", name).out == f"Paused connector {name}.\n"
    command.until(lambda known: known["tasks"][0]["state"] == "PAUSED", "status", name)
    assert command("resume", name).code == 0
    changed = command("update", name, "limit=7", "interval.ms=2", "--unset", "limits")
    assert changed == (0, f"Changed connector {name}.\n", "limits was not set.\n")
    command.until(lambda known: known["offsets"] == [offset(7)], "offsets", name)
    refused = command("offsets", name, "--reset")
    assert refused.code == 1
    assert "must be in the STOPPED state" in refused.err
    assert "`oncelog connect stop NAME` stops it" in refused.err
    assert command("stop", name).code == 0
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps({"offsets": [offset(3)]}))
    assert "altered" in command("offsets", name, "--set", str(saved)).out
    assert command.json("offsets", name) == {"offsets": [offset(3)]}
    assert "reset" in command("offsets", name, "--reset").out
    assert command("offsets", name).err == f"Connector {name} has no offsets yet.\n"
    path.write_text(path.read_text().replace("limit=5", "limit=4"))
    assert command("update", name, "--file", str(path)).code == 0
    assert command("restart", name).out.startswith("Restarting ")
    assert command("resume", name).code == 0
    command.until(lambda known: known["offsets"] == [offset(4)], "offsets", name)
    assert command("restart", name, "--task", "0").out == f"Restarting task 0 of connector {name}.\n"
    assert command("delete", name).out == f"Deleted connector {name}.\n"
    assert name not in command.json("list")


def offset(count: int) -> dict[str, Any]:
    return {"partition": {"task": 0}, "offset": {"count": count}}


def test_a_connector_from_standard_input_may_begin_stopped(command: Command, fresh_name: Names) -> None:
    name = fresh_name("beats")
    config = {"connector.class": "HeartbeatSource", "topic": name}
    text = json.dumps({"name": name, "config": config})
    assert command("create", "-", "--stopped", input=text).code == 0
    command.until(lambda known: known["connector"]["state"] == "STOPPED", "status", name)
    for options, state in (([], "PAUSED"), (["--stopped"], "STOPPED")):
        assert command("delete", name).code == 0
        stateful = json.dumps({"name": name, "config": config, "initial_state": "paused"})
        assert command("create", "-", "--wait", *options, input=stateful).code == 0
        assert command.json("status", name)["connector"]["state"] == state
    again = command("create", "-", input=text)
    assert again.code == 1
    assert "already exists\n`oncelog connect update` changes it." in again.err
    command("delete", name)


def test_a_failed_task_is_shown_with_its_reason(command: Command, fresh_name: Names) -> None:
    name = fresh_name("broken")
    config = {"name": name, "connector.class": "HeartbeatSource", "topic": name, "producer.override.linger.ms": "-5"}
    created = command("create", "--wait", "-", input=json.dumps(config))
    assert (created.code, created.out) == (1, f"Created connector {name}.\n")
    assert f"task 0 of {name}:" in created.err
    shown = command("status", name)
    assert shown.code == 1
    assert "task 0\tFAILED" in shown.out
    assert "linger.ms" in shown.err
    assert "--only-failed` restarts" in shown.err
    command("delete", name)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("status", "none"), 1, "No status found for connector none\n`oncelog connect list` prints the connectors."),
        (("delete", "a/b c"), 1, "Connector a/b c not found"),
        (("update", "x"), 2, "nothing to change"),
        (("update", "x", "novalue"), 2, "'novalue' is not KEY=VALUE"),
        (("create", "/nope.json"), 1, "/nope.json: No such file or directory"),
        (("list", "--url", "http://127.0.0.1:1"), 1, "no worker answers at http://127.0.0.1:1: Connection refused"),
        (("list", "--url", "localhost"), 2, "begin with http://"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_remedy(
    command: Command, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = command(*arguments)
    assert done.code == code
    assert message in done.err


def test_settings_that_are_wrong_are_listed(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({"name": "w", "connector.class": "HeartbeatSource", "limit": "many"}))
    done = command("validate", str(path))
    assert done.code == 1
    assert "topic: Missing required configuration" in done.out
    assert "limit: Invalid value many" in done.out


def test_plugins_and_their_settings_are_listed(command: Command) -> None:
    assert "org.apache.kafka.connect.file.FileStreamSourceConnector\tsource\t" in command("plugins").out
    assert "transforms.Cast$Key\ttransformation" in command("plugins", "--all").out
    assert "batch.size\tINT\t2000\tMaximum lines" in command("plugins", "FileStreamSource").out


def test_the_worker_shows_metrics(command: Command, beats: tuple[str, Path]) -> None:
    name, path = beats
    command("create", str(path))
    command.until(lambda known: known["offsets"][:1] == [offset(5)], "offsets", name)
    with urlopen(f"{command.url}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    labels = f'{{connector="{name}",task="0"}}'
    assert f"kafka_connect_source_task_source_record_poll_total{labels} 5\n" in text
    assert f"kafka_connect_source_task_source_record_write_total{labels} 5\n" in text
    assert f'kafka_connect_connector_task_status{{connector="{name}",task="0",status="running"}} 1\n' in text
    command("delete", name)
