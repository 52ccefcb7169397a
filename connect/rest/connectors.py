"""The endpoints under /connectors."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from ..errors import ConnectError
from ..herder.herder import Put
from ..signatures import ALGORITHM_HEADER, SIGNATURE_HEADER
from ..stores.config_records import RestartRequest, TargetState
from ..stores.ids import ConnectorTaskId
from .bodies import check_name, known_fields, plain_text, read_json, read_settings, settings
from .errors import answer
from .messages import HttpError, Request, Response
from .routing import Route

_TRIMMED: Final = "".join(map(chr, range(33)))
"""The characters that Java's String.trim() removes."""

_PART: Final = "!$&'()*+,;=:@"
"""The characters that a part of a path may contain besides letters, digits and -._~ (RFC 3986, 3.3)."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def _name(request: Request) -> str:
    return request.parameters["name"]


def _task(request: Request) -> ConnectorTaskId:
    number = request.parameters["task"]
    if not _NUMBER.fullmatch(number) or not -(2**31) <= int(number) < 2**31:
        raise HttpError(HTTPStatus.NOT_FOUND)
    return ConnectorTaskId(_name(request), int(number))


def _flag(request: Request, name: str) -> bool:
    return request.query.get(name, ["false"])[0].lower() == "true"


async def list_connectors(request: Request) -> Response:
    """Return the names of the connectors; with ?expand=info&expand=status, also their infos and statuses."""
    herder = request.herder
    parts = request.query.get("expand")
    return answer(await (herder.connectors() if parts is None else herder.expanded_connectors(parts)))


async def create(request: Request) -> Response:
    """Create a connector; answer 409 if a connector with that name exists."""
    body = known_fields(read_json(request, numbers=str), "name", "config", "initial_state")
    if body.get("config") is None:
        raise ConnectError('the field "config" is missing: send {"name": …, "config": {…}}')
    config = settings(body["config"])
    name = (plain_text("name", body.get("name")) or "").strip(_TRIMMED)
    target = TargetState.initial(body.get("initial_state"))
    put = await request.herder.put_connector(name, check_name(config, name), target, replace=False)
    return _put_answer(request, put)


async def info(request: Request) -> Response:
    """Return a connector's settings and tasks."""
    return answer(await request.herder.connector_info(_name(request)))


async def config(request: Request) -> Response:
    """Return a connector's settings."""
    return answer((await request.herder.connector_info(_name(request)))["config"])


async def put_config(request: Request) -> Response:
    """Create a connector, or change its settings."""
    name = _name(request)
    settings_with_name = check_name(read_settings(request), name)
    return _put_answer(request, await request.herder.put_connector(name, settings_with_name, None, replace=True))


async def patch_config(request: Request) -> Response:
    """Change the given settings of a connector."""
    body = read_json(request, numbers=str)
    if body is None:
        await request.herder.connector_info(_name(request))  # answers 404 if the connector does not exist
    return _put_answer(request, await request.herder.patch_connector(_name(request), settings(body)))


async def delete(request: Request) -> Response:
    """Delete a connector."""
    await request.herder.delete_connector(_name(request))
    return Response(status=204)


async def status(request: Request) -> Response:
    """Return the states of a connector and its tasks."""
    return answer(await request.herder.connector_status(_name(request)))


async def tasks(request: Request) -> Response:
    """Return the settings of a connector's tasks."""
    return answer(await request.herder.task_configs(_name(request)))


async def put_tasks(request: Request) -> Response:
    """Write the task settings that another worker has sent (internal)."""
    signature, algorithm = _signature(request)
    await request.herder.put_task_configs(_name(request), request.body, signature, algorithm)
    return Response(status=204)


async def fence(request: Request) -> Response:
    """Fence the producers of a connector's earlier tasks (internal)."""
    await request.herder.fence_zombies(_name(request), request.body, *_signature(request))
    return Response(status=204)


async def task_status(request: Request) -> Response:
    """Return the state of a task."""
    return answer(await request.herder.task_status(_task(request)))


async def restart_task(request: Request) -> Response:
    """Restart a task."""
    await request.herder.restart_task(_task(request))
    return Response(status=204)


async def restart(request: Request) -> Response:
    """Restart a connector; with ?includeTasks also its tasks, with ?onlyFailed only what has failed."""
    only_failed, include_tasks = _flag(request, "onlyFailed"), _flag(request, "includeTasks")
    if not only_failed and not include_tasks:
        await request.herder.restart_connector(_name(request))
        return Response(status=204)
    wanted = RestartRequest(_name(request), only_failed, include_tasks)
    return answer(await request.herder.restart_connector_and_tasks(wanted), 202)


async def pause(request: Request) -> Response:
    """Pause a connector."""
    await request.herder.set_target_state(_name(request), TargetState.PAUSED)
    return Response(status=202)


async def resume(request: Request) -> Response:
    """Resume a connector."""
    await request.herder.set_target_state(_name(request), TargetState.STARTED)
    return Response(status=202)


async def stop(request: Request) -> Response:
    """Stop a connector and remove its tasks."""
    await request.herder.set_target_state(_name(request), TargetState.STOPPED)
    return Response(status=204)


async def offsets(request: Request) -> Response:
    """Return a connector's committed offsets."""
    return answer(await request.herder.offsets(_name(request)))


async def alter_offsets(request: Request) -> Response:
    """Set offsets of a stopped connector. If a source partition is listed repeatedly, its last offset counts."""
    body = known_fields(read_json(request), "offsets")
    entries = body.get("offsets")
    if entries is not None and not isinstance(entries, list):
        raise ConnectError('the field "offsets" must be a list of {"partition": {…}, "offset": {…}}')
    pairs = [known_fields(each, "partition", "offset") for each in entries or []]
    wanted: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {}
    for each in pairs:
        partition, offset = _object(each, "partition") or {}, _object(each, "offset")
        wanted[json.dumps(partition, sort_keys=True)] = partition, offset
    return answer(await request.herder.alter_offsets(_name(request), list(wanted.values())))


async def reset_offsets(request: Request) -> Response:
    """Delete the offsets of a stopped connector."""
    return answer(await request.herder.reset_offsets(_name(request)))


async def topics(request: Request) -> Response:
    """Return the topics that a connector has written to."""
    return answer(await request.herder.topics(_name(request)))


async def reset_topics(request: Request) -> Response:
    """Forget the topics that a connector has written to."""
    await request.herder.reset_topics(_name(request))
    return Response(status=202)


def _object(body: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise ConnectError(f'"{name}" must be a JSON object, not {type(value).__name__}')
    return value


def _put_answer(request: Request, put: Put) -> Response:
    if not put.created:
        return answer(put.info)
    path = f"/connectors/{quote(put.info['name'], safe=_PART)}"
    return answer(put.info, 201, {"Location": request.absolute(path)})


def _signature(request: Request) -> tuple[str | None, str | None]:
    headers = request.headers
    return headers.get(SIGNATURE_HEADER.lower()), headers.get(ALGORITHM_HEADER.lower())


ROUTES: Final = (
    Route("GET", "/connectors", list_connectors),
    Route("POST", "/connectors", create),
    Route("GET", "/connectors/{name}", info),
    Route("GET", "/connectors/{name}/config", config),
    Route("PUT", "/connectors/{name}/config", put_config),
    Route("PATCH", "/connectors/{name}/config", patch_config),
    Route("DELETE", "/connectors/{name}", delete),
    Route("GET", "/connectors/{name}/status", status),
    Route("GET", "/connectors/{name}/tasks", tasks),
    Route("POST", "/connectors/{name}/tasks", put_tasks),
    Route("PUT", "/connectors/{name}/fence", fence),
    Route("GET", "/connectors/{name}/tasks/{task}/status", task_status),
    Route("POST", "/connectors/{name}/tasks/{task}/restart", restart_task),
    Route("POST", "/connectors/{name}/restart", restart),
    Route("PUT", "/connectors/{name}/pause", pause),
    Route("PUT", "/connectors/{name}/resume", resume),
    Route("PUT", "/connectors/{name}/stop", stop),
    Route("GET", "/connectors/{name}/offsets", offsets),
    Route("PATCH", "/connectors/{name}/offsets", alter_offsets),
    Route("DELETE", "/connectors/{name}/offsets", reset_offsets),
    Route("GET", "/connectors/{name}/topics", topics),
    Route("PUT", "/connectors/{name}/topics/reset", reset_topics),
)
