"""Define the commands that manage connectors of running workers, such as `oncelog connect list` and `create`.

They send requests to a worker's REST interface.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from .json_output import print_json
from .parameters import Seconds
from .tables import print_list, print_table
from .waiting import Waiting
from .worker_rest import TIMEOUT_S, RequestError, path, request, worker_options

_LOOK_AGAIN_S: Final = 0.2
_LAST_LOOK_S: Final = 1.0
"""Seconds that a worker has for a request at the end of a wait, even if less time is left."""

_TASKLESS_S: Final = 10.0
"""Seconds after which a running connector has no tasks. Before, workers do not tell whether it will get some."""

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command("list", short_help="Print all connectors and their states.")
@worker_options
def list_(url: str, as_json: bool) -> None:
    """Print all connectors, one per line, with columns separated by tabs: name, state, running tasks/all tasks, class.

    \b
    oncelog connect list
    oncelog connect list --json | jq 'keys'
    """
    known = request(url, "GET", "/connectors?expand=status&expand=info")
    if as_json:
        print_json(known)
        return
    rows = []
    for name, each in sorted(known.items()):
        status, info = each.get("status", {}), each.get("info", {})
        states = [task["state"] for task in status.get("tasks", [])]
        running = f"{states.count('RUNNING')}/{len(states)}"
        rows.append(
            [
                name,
                status.get("connector", {}).get("state", "UNASSIGNED"),
                running,
                info.get("config", {}).get("connector.class", ""),
            ]
        )
    print_list(["name", "state", "tasks", "class"], rows, "No connectors. `oncelog connect create` makes one.")


@click.command(short_help="Print the states of a connector and its tasks.")
@click.argument("name")
@worker_options
def status(name: str, url: str, as_json: bool) -> int:
    """Print the states of a connector and its tasks, with the errors of those that have failed.

    The exit code is 1 if the connector or a task has failed.

    \b
    oncelog connect status lines
    """
    known = request(url, "GET", path("connectors", name, "status"))
    parts = _parts(known)
    if as_json:
        print_json(known)
    else:
        rows = [[part, state, each["worker_id"]] for part, state, each in parts]
        print_table(None, ["part", "state", "worker"], rows)
        for part, _, each in parts:
            if each.get("trace"):
                click.echo(f"\n{part} of {name}:\n{each['trace'].strip()}", err=True)
    failed = [part for part, state, _ in parts if state == "FAILED"]
    if failed and not as_json:
        click.echo(f"\n`oncelog connect restart {name} --only-failed` restarts only what has failed.", err=True)
    return 1 if failed else 0


@click.command(short_help="Create a connector from a file.")
@click.argument("file", type=_FILE)
@click.option("--paused", "state", flag_value="PAUSED", help="Create the connector in the state PAUSED.")
@click.option(
    "--stopped",
    "state",
    flag_value="STOPPED",
    help="Create the connector in the state STOPPED, so that its offsets can be set before it starts.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the connector and its tasks are running. The exit code is 1 if one of them fails.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time that --wait waits.",
)
@worker_options
def create(file: Path, state: str | None, wait: bool, timeout: float, url: str, as_json: bool) -> int:
    """Create a connector from FILE.

    --wait also ends, with exit code 0, if the connector has been running for ten seconds and still has no tasks.

    FILE is a .properties, .toml or JSON file with the settings. A JSON file may instead have the form {"name",
    "config"}, with or without "initial_state". If FILE is -, the command reads JSON from stdin.

    \b
    oncelog connect create --wait lines.properties
    oncelog connect create --stopped shop.json
    """
    name, config, given = _read(file)
    if not name:
        raise click.UsageError(f"{file}: the setting name is missing. Set it to the connector's name")
    initial = given if state is None else state
    body: dict[str, Any] = {"name": name, "config": config}
    if initial is not None:
        body["initial_state"] = initial
    made = request(url, "POST", "/connectors", body)
    known = _settled(url, name, str(initial or "RUNNING").upper(), timeout) if wait else None
    _done(known or made, as_json, f"Created connector {name}.")
    failed = [] if known is None else [part for part in _parts(known) if part[1] == "FAILED"]
    for part, _, each in failed if not as_json else []:
        click.echo(f"\n{part} of {name}:\n{each.get('trace', '').strip()}", err=True)
    if known is not None and [state for _, state, _ in _parts(known)] == ["RUNNING"]:
        click.echo(
            f"Connector {name} has no tasks: it has no work for them, or it cannot make their settings. In the latter"
            " case, the worker's log contains the reason.",
            err=True,
        )
    return 1 if failed else 0


@click.command(short_help="Change settings of a connector.")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove this setting. May be repeated.")
@click.option(
    "--file", type=_FILE, help="Replace all settings with those of a file. Creates the connector if it does not exist."
)
@worker_options
def update(
    name: str, settings: tuple[str, ...], unset: tuple[str, ...], file: Path | None, url: str, as_json: bool
) -> None:
    """Change settings of a connector, or replace all of them with --file. The connector's tasks are restarted.

    \b
    oncelog connect update lines batch.size=500 --unset transforms
    oncelog connect update lines --file lines.properties
    """
    if file is not None:
        if settings or unset:
            raise click.UsageError("--file cannot be combined with KEY=VALUE or --unset")
        _, config, _ = _read(file)
        changed = request(url, "PUT", path("connectors", name, "config"), {**config, "name": name})
    else:
        if not settings and not unset:
            raise click.UsageError("nothing to change: give KEY=VALUE, --unset KEY or --file FILE")
        patch: dict[str, str | None] = dict.fromkeys(unset)
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals or not key:
                raise click.UsageError(f"{setting!r} is not KEY=VALUE")
            patch[key] = value
        before = request(url, "GET", path("connectors", name, "config")) if unset else {}
        changed = request(url, "PATCH", path("connectors", name, "config"), patch)
        for key in unset:
            if key not in before:
                click.echo(f"{key} was not set.", err=True)
    _done(changed, as_json, f"Changed connector {name}.")


@click.command(short_help="Check the settings of a connector.")
@click.argument("file", type=_FILE)
@worker_options
def validate(file: Path, url: str, as_json: bool) -> int:
    """Check the settings in FILE without creating a connector. The exit code is 1 if a setting is wrong.

    \b
    oncelog connect validate lines.properties
    """
    name, config, _ = _read(file)
    plugin = config.get("connector.class")
    if not plugin:
        raise click.UsageError(f"{file}: the setting connector.class is missing. Set it to the class of the connector")
    given = {**config, "name": name} if name else config
    report = request(url, "PUT", path("connector-plugins", plugin, "config", "validate"), given)
    if as_json:
        print_json(report)
    else:
        for each in report["configs"]:
            for error in (each["value"] or {}).get("errors", []):
                click.echo(f"{each['value']['name']}: {error}")
        if not report["error_count"]:
            click.echo("All settings are valid.")
    return 1 if report["error_count"] else 0


@click.command(short_help="Pause connectors. Their tasks stay assigned.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@worker_options
def pause(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Pause connectors. Their tasks stay assigned to their workers, but read nothing."""
    _each(names, "pause", "Paused", url, as_json)


@click.command(short_help="Resume connectors that are paused or stopped.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@worker_options
def resume(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Resume connectors that are paused or stopped."""
    _each(names, "resume", "Resumed", url, as_json)


@click.command(short_help="Stop connectors and remove their tasks.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@worker_options
def stop(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Stop connectors and remove their tasks. The offsets of a stopped connector can be changed."""
    _each(names, "stop", "Stopped", url, as_json)


@click.command(short_help="Restart a connector and its tasks.")
@click.argument("name")
@click.option("--task", type=click.IntRange(0), help="Restart only this task.")
@click.option("--only-failed", is_flag=True, help="Restart only what has failed: the connector, or some of its tasks.")
@click.option("--connector-only", is_flag=True, help="Restart the connector without its tasks.")
@worker_options
def restart(name: str, task: int | None, only_failed: bool, connector_only: bool, url: str, as_json: bool) -> None:
    """Restart a connector and its tasks.

    \b
    oncelog connect restart lines --only-failed
    oncelog connect restart lines --task 0
    """
    if task is not None:
        if only_failed or connector_only:
            raise click.UsageError("--task cannot be combined with --only-failed or --connector-only")
        answer = request(url, "POST", path("connectors", name, "tasks", task, "restart"))
        what = f"task {task} of connector {name}"
    else:
        tasks = "false" if connector_only else "true"
        query = f"?includeTasks={tasks}&onlyFailed={str(only_failed).lower()}"
        answer = request(url, "POST", path("connectors", name, "restart") + query)
        restarted = [] if answer is None else [answer["connector"], *answer["tasks"]]
        count = sum(each["state"] == "RESTARTING" for each in restarted)
        what = f"connector {name}" if answer is None else f"{count} of {len(restarted)} parts of connector {name}"
    _done(answer, as_json, f"Restarting {what}.")


@click.command(short_help="Print, set or reset the source offsets of a connector.")
@click.argument("name")
@click.option("--set", "file", type=_FILE, help='JSON file {"offsets": [{"partition": …, "offset": …}]}; - is stdin.')
@click.option(
    "--reset", is_flag=True, help="Delete all offsets. The connector then reads its source from the beginning."
)
@worker_options
def offsets(name: str, file: Path | None, reset: bool, url: str, as_json: bool) -> None:
    """Print the source offsets of a connector: partition and offset as JSON, separated by a tab.

    --set and --reset change the offsets. The connector must be stopped for this.

    \b
    oncelog connect offsets lines
    oncelog connect stop lines && oncelog connect offsets lines --reset
    oncelog connect offsets lines --json > saved.json && oncelog connect offsets lines --set saved.json
    """
    where = path("connectors", name, "offsets")
    if file is not None and reset:
        raise click.UsageError("--set and --reset cannot be combined")
    if file is None and not reset:
        known = request(url, "GET", where)
        if as_json:
            print_json(known)
            return
        rows = [[_compact(each["partition"]), _compact(each["offset"])] for each in known["offsets"]]
        print_list(["partition", "offset"], rows, f"Connector {name} has no offsets yet.")
        return
    answer = request(url, "DELETE", where) if file is None else request(url, "PATCH", where, _json(file))
    _done(answer, as_json, answer["message"])


@click.command(short_help="Delete connectors. Their offsets are kept.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@worker_options
def delete(names: tuple[str, ...], url: str, as_json: bool) -> None:
    """Stop and delete connectors. Their offsets are kept, and a new connector of the same name continues from them."""
    for name in names:
        answer = request(url, "DELETE", path("connectors", name))
        _done(answer, as_json, f"Deleted connector {name}.")


@click.command(short_help="Print the plugins of a worker, or the settings of a plugin.")
@click.argument("plugin", required=False)
@click.option("--all", "all_kinds", is_flag=True, help="Print converters, transformations and predicates as well.")
@worker_options
def plugins(plugin: str | None, all_kinds: bool, url: str, as_json: bool) -> None:
    """Print the connectors that a worker can run, or the settings of a plugin.

    \b
    oncelog connect plugins
    oncelog connect plugins FileStreamSource
    """
    if plugin is not None:
        keys = request(url, "GET", path("connector-plugins", plugin, "config"))
        if as_json:
            print_json(keys)
            return
        rows = [[key["name"], key["type"], _default(key), key["documentation"]] for key in keys]
        print_table(None, ["setting", "type", "default", "meaning"], rows)
        return
    known = request(url, "GET", f"/connector-plugins?connectorsOnly={str(not all_kinds).lower()}")
    if as_json:
        print_json(known)
        return
    rows = [[each["class"], each["type"], each.get("version") or ""] for each in known]
    print_list(["class", "type", "version"], rows, "No plugins.")


COMMANDS = (list_, status, create, update, validate, pause, resume, stop, restart, offsets, delete, plugins)


def _settled(url: str, name: str, wanted: str, timeout_s: float) -> Any:
    """Wait until a connector and its tasks are in the state `wanted`, or one of them has failed. Return the status.

    A connector that is to run and has no tasks is waited for until it has been running for `_TASKLESS_S` seconds.
    Raise ClickException after `timeout_s` seconds, or as soon as the worker refuses to return the status.
    """
    end = time.monotonic() + timeout_s
    alone_since: float | None = None
    with Waiting(f"waiting for connector {name}") as waiting:
        while True:
            left_s = max(end - time.monotonic(), _LAST_LOOK_S)
            try:
                request_s = min(left_s, TIMEOUT_S)
                known = request(url, "GET", path("connectors", name, "status"), timeout_s=request_s)
                states = [state for _, state, _ in _parts(known)]
                alone = wanted == "RUNNING" and states == ["RUNNING"]
                if not alone:
                    alone_since = None
                elif alone_since is None:
                    alone_since = time.monotonic()
                taskless = (
                    alone_since is not None
                    and time.monotonic() - alone_since >= _TASKLESS_S
                    and not request(url, "GET", path("connectors", name, "tasks"), timeout_s=request_s)
                )
            except RequestError as error:
                if not error.may_pass:
                    raise click.ClickException(
                        f"connector {name} was created, but its status cannot be read: {error.message}"
                    ) from None
                seen = error.message.partition("\n")[0]
            else:
                if "FAILED" in states or taskless or (not alone and set(states) == {wanted}):
                    return known
                seen = ", ".join(f"{part} {state}" for part, state, _ in _parts(known)) + ", no tasks" * alone
            waiting.what = f"waiting for connector {name}: {seen}"
            if time.monotonic() >= end:
                raise click.ClickException(
                    f"connector {name} was created, but it did not become {wanted} within {timeout_s:g} s: {seen}\n"
                    f"`oncelog connect status {name}` shows more; raise --timeout to wait longer."
                )
            time.sleep(_LOOK_AGAIN_S)


def _parts(known: Any) -> list[tuple[str, str, Any]]:
    """Return a (name, state, status) tuple for the connector and for each of its tasks."""
    parts = [("connector", known["connector"]), *((f"task {task['id']}", task) for task in known["tasks"])]
    return [(part, each["state"], each) for part, each in parts]


def _each(names: tuple[str, ...], action: str, done: str, url: str, as_json: bool) -> None:
    for name in names:
        _done(request(url, "PUT", path("connectors", name, action)), as_json, f"{done} connector {name}.")


def _read(file: Path) -> tuple[str | None, dict[str, Any], Any]:
    """Return the name, the settings and the initial state in a file. A missing name or state is None."""
    if file.suffix in (".properties", ".toml"):
        from ..connect.settings.files import read_settings

        given: Any = dict(read_settings(file))
    else:
        given = _json(file)
    if not isinstance(given, dict):
        raise click.ClickException(f"{file}: a JSON object of settings is expected, not {type(given).__name__}")
    if isinstance(given.get("config"), dict):
        name = given.get("name") or given["config"].get("name")
        return name, given["config"], given.get("initial_state")
    return given.get("name"), given, None


def _json(file: Path) -> Any:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.ClickException(f"{file} is not JSON: {error}") from None


def _done(answer: Any, as_json: bool, sentence: str) -> None:
    if not as_json:
        click.echo(sentence)
    elif answer is not None:
        print_json(answer)


def _default(key: dict[str, Any]) -> str:
    return "(required)" if key["required"] else str(key["default_value"] or "")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
