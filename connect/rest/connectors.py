"""The endpoints under /connectors."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from ..errors import ConnectError, NotFoundError
from ..herder.herder import Herder, Put
from ..signatures import ALGORITHM_HEADER, SIGNATURE_HEADER
from ..stores.config_records import RestartRequest, TargetState
from ..stores.ids import ConnectorTaskId
from .bodies import check_name, known_fields, plain_text, read_json, read_settings, settings
from .errors import answer

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")

HERDER: Final = web.AppKey("herder", Herder)


def _herder(request: web.Request) -> Herder:
    herder: Herder = request.app[HERDER]
    return herder


def _name(request: web.Request) -> str:
    return str(request.match_info["name"])


def _task(request: web.Request) -> ConnectorTaskId:
    number = request.match_info["task"]
    if not _NUMBER.fullmatch(number) or not -(2**31) <= int(number) < 2**31:
        raise web.HTTPNotFound
    return ConnectorTaskId(_name(request), int(number))


def _flag(request: web.Request, name: str) -> bool:
    return str(request.query.get(name, "false")).lower() == "true"


async def list_connectors(request: web.Request) -> web.Response:
    """Return the names of the connectors; with ?expand=info&expand=status, also their infos and statuses."""
    herder = _herder(request)
    names = await herder.connectors()
    if "expand" not in request.query:
        return answer(names)
    expanded: dict[str, Any] = {}
    for name in names:
        known: dict[str, Any] = {}
        try:
            for what in request.query.getall("expand"):
                if what == "status":
                    known["status"] = await herder.connector_status(name)
                elif what == "info":
                    known["info"] = await herder.connector_info(name)
        except NotFoundError:
            continue  # deleted in the meantime, or just created
        expanded[name] = known
    return answer(expanded)


async def create(request: web.Request) -> web.Response:
    """Create a connector; answer 409 if a connector of that name exists."""
    body = known_fields(await read_json(request), "name", "config", "initial_state")
    if body.get("config") is None:
        raise ConnectError('the field "config" is missing: {"name": …, "config": {…}}')
    config = settings(body["config"])
    name = (plain_text("name", body.get("name")) or "").strip()
    state = body.get("initial_state")
    wanted = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
    if state is not None and str(state).upper() not in wanted:
        raise ConnectError(f"initial_state {state!r} is not one of RUNNING, PAUSED, STOPPED")
    target = None if state is None else wanted[str(state).upper()]
    put = await _herder(request).put_connector(name, check_name(config, name), target, replace=False)
    return _put_answer(request, put)


async def info(request: web.Request) -> web.Response:
    """Return a connector's settings and tasks."""
    return answer(await _herder(request).connector_info(_name(request)))


async def config(request: web.Request) -> web.Response:
    """Return a connector's settings."""
    return answer((await _herder(request).connector_info(_name(request)))["config"])


async def put_config(request: web.Request) -> web.Response:
    """Create a connector, or change its settings."""
    name = _name(request)
    given = check_name(await read_settings(request), name)
    return _put_answer(request, await _herder(request).put_connector(name, given, None, replace=True))


async def patch_config(request: web.Request) -> web.Response:
    """Change the given settings of a connector."""
    body = await read_json(request)
    if body is None:
        await _herder(request).connector_info(_name(request))  # answers 404 if the connector does not exist
    return _put_answer(request, await _herder(request).patch_connector(_name(request), settings(body)))


async def delete(request: web.Request) -> web.Response:
    """Delete a connector."""
    await _herder(request).delete_connector(_name(request))
    return web.Response(status=204)


async def status(request: web.Request) -> web.Response:
    """Return the states of a connector and its tasks."""
    return answer(await _herder(request).connector_status(_name(request)))


async def tasks(request: web.Request) -> web.Response:
    """Return the settings of a connector's tasks."""
    return answer(await _herder(request).task_configs(_name(request)))


async def put_tasks(request: web.Request) -> web.Response:
    """Write the task settings that another worker has sent (internal)."""
    signature, algorithm = _signature(request)
    await _herder(request).put_task_configs(_name(request), await request.read(), signature, algorithm)
    return web.Response(status=204)


async def fence(request: web.Request) -> web.Response:
    """Fence the producers of a connector's earlier tasks (internal)."""
    await _herder(request).fence_zombies(_name(request), await request.read(), *_signature(request))
    return web.Response(status=204)


async def task_status(request: web.Request) -> web.Response:
    """Return the state of a task."""
    return answer(await _herder(request).task_status(_task(request)))


async def restart_task(request: web.Request) -> web.Response:
    """Restart a task."""
    await _herder(request).restart_task(_task(request))
    return web.Response(status=204)


async def restart(request: web.Request) -> web.Response:
    """Restart a connector; with ?includeTasks also its tasks, with ?onlyFailed only failed instances."""
    only_failed, include_tasks = _flag(request, "onlyFailed"), _flag(request, "includeTasks")
    if not only_failed and not include_tasks:
        await _herder(request).restart_connector(_name(request))
        return web.Response(status=204)
    wanted = RestartRequest(_name(request), only_failed, include_tasks)
    return answer(await _herder(request).restart_connector_and_tasks(wanted), 202)


async def pause(request: web.Request) -> web.Response:
    """Pause a connector."""
    await _herder(request).set_target_state(_name(request), TargetState.PAUSED)
    return web.Response(status=202)


async def resume(request: web.Request) -> web.Response:
    """Resume a connector."""
    await _herder(request).set_target_state(_name(request), TargetState.STARTED)
    return web.Response(status=202)


async def stop(request: web.Request) -> web.Response:
    """Stop a connector and remove its tasks."""
    await _herder(request).set_target_state(_name(request), TargetState.STOPPED)
    return web.Response(status=204)


async def offsets(request: web.Request) -> web.Response:
    """Return a connector's committed offsets."""
    return answer(await _herder(request).offsets(_name(request)))


async def alter_offsets(request: web.Request) -> web.Response:
    """Set offsets of a stopped connector."""
    body = known_fields(await read_json(request), "offsets")
    given = body.get("offsets")
    if given is not None and not isinstance(given, list):
        raise ConnectError('the field "offsets" must be a list of {"partition": {…}, "offset": {…}}')
    pairs = [known_fields(each, "partition", "offset") for each in given or []]
    wanted = [(_object(each, "partition") or {}, _object(each, "offset")) for each in pairs]
    return answer(await _herder(request).alter_offsets(_name(request), wanted))


async def reset_offsets(request: web.Request) -> web.Response:
    """Delete the offsets of a stopped connector."""
    return answer(await _herder(request).reset_offsets(_name(request)))


async def topics(request: web.Request) -> web.Response:
    """Return the topics that a connector has written to."""
    return answer(await _herder(request).topics(_name(request)))


async def reset_topics(request: web.Request) -> web.Response:
    """Forget the topics that a connector has written to."""
    await _herder(request).reset_topics(_name(request))
    return web.Response(status=202)


def _object(given: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = given.get(name)
    if value is not None and not isinstance(value, dict):
        raise ConnectError(f'"{name}" must be a JSON object, not {type(value).__name__}')
    return value


def _put_answer(request: web.Request, put: Put) -> web.Response:
    if not put.created:
        return answer(put.info)
    location = f"{request.url.origin()}/connectors/{quote(put.info['name'], safe='+;,@&=$')}"
    return answer(put.info, 201, {"Location": location})


def _signature(request: web.Request) -> tuple[str | None, str | None]:
    headers = request.headers
    return headers.get(SIGNATURE_HEADER), headers.get(ALGORITHM_HEADER)


ROUTES: Final = (
    web.get("/connectors", list_connectors),
    web.post("/connectors", create),
    web.get("/connectors/{name}", info),
    web.get("/connectors/{name}/config", config),
    web.put("/connectors/{name}/config", put_config),
    web.patch("/connectors/{name}/config", patch_config),
    web.delete("/connectors/{name}", delete),
    web.get("/connectors/{name}/status", status),
    web.get("/connectors/{name}/tasks", tasks),
    web.post("/connectors/{name}/tasks", put_tasks),
    web.put("/connectors/{name}/fence", fence),
    web.get("/connectors/{name}/tasks/{task}/status", task_status),
    web.post("/connectors/{name}/tasks/{task}/restart", restart_task),
    web.post("/connectors/{name}/restart", restart),
    web.put("/connectors/{name}/pause", pause),
    web.put("/connectors/{name}/resume", resume),
    web.put("/connectors/{name}/stop", stop),
    web.get("/connectors/{name}/offsets", offsets),
    web.patch("/connectors/{name}/offsets", alter_offsets),
    web.delete("/connectors/{name}/offsets", reset_offsets),
    web.get("/connectors/{name}/topics", topics),
    web.put("/connectors/{name}/topics/reset", reset_topics),
)
