"""Builds the data that all herders return, in Kafka Connect's JSON formats: infos, task settings, statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..api.connector import SourceConnector
from ..errors import ConnectError, NotFoundError
from ..plugins import load_class, names_sink
from ..stores.cluster_config import ClusterConfigState, Config
from ..stores.config_records import RestartRequest
from ..stores.ids import ConnectorTaskId
from ..stores.status_records import State, Status
from ..stores.status_store import StatusStore

Json = dict[str, Any]


def connector_info(state: ClusterConfigState, name: str) -> Json:
    """Return a connector's settings and tasks. Raises NotFoundError."""
    config = state.connector_configs.get(name)
    if config is None:
        raise NotFoundError(f"Connector {name} not found")
    tasks = [task._asdict() for task in state.tasks(name)]
    return {"name": name, "config": dict(config), "tasks": tasks, "type": connector_type(config)}


def task_configs(state: ClusterConfigState, name: str) -> list[Json]:
    """Return the ids and settings of a connector's tasks. Raises NotFoundError."""
    connector_info(state, name)
    return [{"id": task._asdict(), "config": dict(state.task_configs[task])} for task in state.tasks(name)]


def connector_type(config: Config | None) -> str:
    """Return source, sink or unknown.

    A class that cannot be loaded, or that is not a source connector, is a sink if its name says so, else unknown.
    """
    name = None if config is None else config.get("connector.class")
    if name is None:
        return "unknown"
    with suppress(ConnectError):  # the class cannot be imported
        if issubclass(load_class(name), SourceConnector):
            return "source"
    return "sink" if names_sink(name) else "unknown"


def connector_status(state: ClusterConfigState, statuses: StatusStore, name: str) -> Json:
    """Return the states of a connector and its tasks. Raises NotFoundError."""
    status = statuses.get(name)
    if status is None:
        raise NotFoundError(f"No status found for connector {name}")
    tasks = [{"id": task.task, **_shown(each)} for task, each in statuses.of_tasks(name)]
    kind = connector_type(state.connector_configs.get(name))
    return {"name": name, "connector": _shown(status), "tasks": tasks, "type": kind}


def task_status(statuses: StatusStore, task: ConnectorTaskId) -> Json:
    """Return the state of a task. Raises NotFoundError."""
    status = statuses.get(task)
    if status is None:
        raise NotFoundError(f"No status found for task {task}")
    return {"id": task.task, **_shown(status)}


def restart_plan(
    state: ClusterConfigState, statuses: StatusStore, request: RestartRequest
) -> tuple[bool, list[ConnectorTaskId], Json]:
    """Return whether the connector restarts, which tasks restart, and the resulting status. Raises NotFoundError."""
    if statuses.get(request.connector) is None:
        raise NotFoundError(f"Status for connector {request.connector} not found")
    answer = connector_status(state, statuses, request.connector)

    def restarts(status: Mapping[str, Any]) -> bool:
        return not request.only_failed or status["state"] == State.FAILED.value

    connector = restarts(answer["connector"])
    tasks = [each for each in answer["tasks"] if request.include_tasks and restarts(each)]
    for status in ([answer["connector"]] if connector else []) + tasks:
        status["state"] = State.RESTARTING.value
    return connector, [ConnectorTaskId(request.connector, each["id"]) for each in tasks], answer


def task_configs_changed(state: ClusterConfigState, name: str, configs: Sequence[Mapping[str, str]]) -> bool:
    """Return whether task settings must be written, which restarts all tasks.

    They must be written if they have changed. They must also be written if the connector's settings were written after
    them, because the tasks need the connector's new settings (KAFKA-9228). This is so even if the connector's new
    settings equal the earlier ones (KAFKA-17719).
    """
    tasks = state.tasks(name)
    if list(configs) != [dict(state.task_configs[task]) for task in tasks]:
        return True
    return bool(tasks) and name in state.outdated


def _shown(status: Status) -> Json:
    answer: Json = {"state": status.state.value, "worker_id": status.worker_id}
    if status.trace:
        answer["trace"] = status.trace
    answer["version"] = status.version
    return answer
