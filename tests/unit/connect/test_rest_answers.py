"""Requests to the endpoints under /connectors and /connector-plugins, and their answers, with Kafka Connect's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

pytest.importorskip("h11", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.herder import answers
from oncelog.connect.herder.herder import Herder, Put
from oncelog.connect.plugins import PluginKind
from oncelog.connect.rest import connectors, plugins
from oncelog.connect.rest.errors import errors
from oncelog.connect.rest.messages import Request, Response
from oncelog.connect.rest.routing import Router
from oncelog.connect.stores import config_records
from oncelog.connect.stores.cluster_config import ClusterConfigState, ConfigTopicState
from oncelog.connect.stores.config_records import RestartRequest
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.memory_log import MemoryLog
from oncelog.connect.stores.status_records import State, Status
from oncelog.connect.stores.status_store import StatusStore
from oncelog.connect.stores.topic_log import LogRecord

ROUTER = Router([*connectors.ROUTES, *plugins.ROUTES], [errors])
NUMBERS = b'{"connector.class": "C", "a": 1.50, "b": 1e3, "c": 1E400, "d": -0, "e": 0.00001, "f": true, "g": 7}'
AS_WRITTEN = {
    "connector.class": "C", "a": "1.50", "b": "1e3", "c": "1E400", "d": "-0", "e": "0.00001", "f": "true", "g": "7",
}  # fmt: skip


class Given:
    """A herder that keeps the settings it is given, and says that the connector was created."""

    def __init__(self) -> None:
        self.config: Mapping[str, str | None] = {}

    async def put_connector(self, name: str, config: Mapping[str, str | None], target: Any, *, replace: bool) -> Put:
        self.config = config
        return Put(True, {"name": name})

    async def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Put:
        self.config = patch
        return Put(False, {"name": name})

    async def alter_offsets(self, name: str, offsets: Any) -> dict[str, Any]:
        self.offsets = offsets
        return {}

    async def validate(self, config: Mapping[str, str | None]) -> dict[str, Any]:
        self.config = config
        return {}


async def ask(
    herder: object, method: str, path: str, body: bytes = b"", *, scheme: str = "http", **headers: str
) -> Response:
    given = {"content-type": "application/json", **headers}
    return await ROUTER(Request(method, path, given, body, cast(Herder, herder), scheme=scheme))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/connectors/c/config", NUMBERS),
        ("PATCH", "/connectors/c/config", NUMBERS),
        ("POST", "/connectors", b'{"name": "c", "config": ' + NUMBERS + b"}"),
        ("PUT", "/connector-plugins/C/config/validate", NUMBERS),
    ],
)
async def test_numbers_in_settings_stay_as_they_were_written(method: str, path: str, body: bytes) -> None:
    herder = Given()
    assert (await ask(herder, method, path, body)).status < 300
    assert {**herder.config, "name": "c"} == {**AS_WRITTEN, "name": "c"}


async def test_the_last_offset_of_a_partition_counts() -> None:
    herder = Given()
    listed = [
        ({"a": 1, "b": 2}, {"n": 1}),
        ({"a": True, "b": 2}, {"n": 2}),
        ({"b": 2, "a": 1}, {"n": 3}),
        ({"a": 1.0, "b": 2}, None),
    ]
    body = {"offsets": [{"partition": partition, "offset": offset} for partition, offset in listed]}
    assert (await ask(herder, "PATCH", "/connectors/c/offsets", json.dumps(body).encode())).status == 200
    assert [repr(offset) for _, offset in herder.offsets] == ["{'n': 3}", "{'n': 2}", "None"]


@pytest.mark.parametrize(
    ("scheme", "headers", "location"),
    [
        ("http", {"host": "worker:8083"}, "http://worker:8083/connectors/a%20b"),
        ("https", {"host": "worker"}, "https://worker/connectors/a%20b"),
        ("http", {}, "/connectors/a%20b"),
    ],
)
async def test_a_created_connector_is_at_the_address_that_the_client_used(
    scheme: str, headers: dict[str, str], location: str
) -> None:
    answer = await ask(Given(), "PUT", "/connectors/a%20b/config", b"{}", scheme=scheme, **headers)
    assert (answer.status, answer.headers["Location"]) == (201, location)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a-._~!$&'()*+,;=:@b", "a-._~!$&'()*+,;=:@b"),
        ('"#/<>?[\\]^`{|}%', "%22%23%2F%3C%3E%3F%5B%5C%5D%5E%60%7B%7C%7D%25"),
        ("é日", "%C3%A9%E6%97%A5"),
    ],
)
async def test_the_address_of_a_connector_encodes_what_a_part_of_a_path_cannot_have(name: str, path: str) -> None:
    body = json.dumps({"name": name, "config": {}}).encode()
    answer = await ask(Given(), "POST", "/connectors", body)
    assert (answer.status, answer.headers["Location"]) == (201, f"/connectors/{path}")


async def test_only_ascii_spaces_around_a_name_are_removed() -> None:
    body = json.dumps({"name": "\t \u00a0c\u2003 \n", "config": {}}).encode()
    answer = await ask(Given(), "POST", "/connectors", body)
    assert json.loads(answer.body) == {"name": "\u00a0c\u2003"}


async def test_the_plugin_name_connector_does_not_stand_for_every_connector() -> None:
    body = b'{"connector.class": "FileStreamSource"}'
    answer = await ask(Given(), "PUT", "/connector-plugins/Connector/config/validate", body)
    assert answer.status == 400
    answer = await ask(Given(), "PUT", "/connector-plugins/SourceConnector/config/validate", body)
    assert answer.status == 200


async def test_a_plugin_that_cannot_be_loaded_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "installed", lambda kinds: [("no.such.module:C", PluginKind.SOURCE)])
    answer = await ask(Given(), "GET", "/connector-plugins")
    assert json.loads(answer.body) == [{"class": "no.such.module:C", "type": "source"}]


def configured(**classes: str) -> ClusterConfigState:
    state = ConfigTopicState()
    for name, cls in classes.items():
        state.apply(LogRecord(*config_records.connector_config(name, {"connector.class": cls})))
    return state.snapshot()


async def reported(connector: Status, *tasks: Status) -> StatusStore:
    statuses = StatusStore(MemoryLog())
    await statuses.start()
    await statuses.put("c", connector, safe=False)
    for number, task in enumerate(tasks):
        await statuses.put(ConnectorTaskId("c", number), task, safe=False)
    await statuses.flush()
    return statuses


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        ("FileStreamSource", "source"),
        ("org.apache.kafka.connect.file.FileStreamSinkConnector", "sink"),
        ("no.such.module:Connector", "unknown"),
        ("JsonConverter", "unknown"),
    ],
)
async def test_the_type_is_that_of_the_class(cls: str, kind: str) -> None:
    state = configured(c=cls)
    assert answers.connector_info(state, "c")["type"] == kind
    statuses = await reported(Status(State.RUNNING, "w", 0))
    assert answers.connector_status(state, statuses, "c")["type"] == kind
    await statuses.stop()


async def test_the_type_of_a_connector_without_settings_is_unknown() -> None:
    statuses = await reported(Status(State.UNASSIGNED, "w", 0))
    assert answers.connector_status(configured(), statuses, "c")["type"] == "unknown"
    await statuses.stop()


async def test_the_answer_to_a_restart_shows_why_instances_had_failed() -> None:
    statuses = await reported(Status(State.FAILED, "w", 0, "boom"), Status(State.FAILED, "w", 0, "crash"))
    _, _, plan = answers.restart_plan(configured(c="FileStreamSource"), statuses, RestartRequest("c", True, True))
    shown = [(each["state"], each["trace"]) for each in (plan["connector"], *plan["tasks"])]
    assert shown == [("RESTARTING", "boom"), ("RESTARTING", "crash")]
    await statuses.stop()


async def test_an_empty_trace_is_left_out() -> None:
    statuses = await reported(Status(State.FAILED, "w", 0, ""))
    assert "trace" not in answers.connector_status(configured(), statuses, "c")["connector"]
    await statuses.stop()


@pytest.mark.parametrize("query", ["", "?version=1", "?version=%5B1"])
@pytest.mark.parametrize(
    "name",
    [
        *("All", "NoneConnectorClientConfigOverridePolicy", "File", "EnvVarConfigProvider"),
        "org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy",
        "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    ],
)
async def test_policies_and_config_providers_have_no_settings_to_show(name: str, query: str) -> None:
    answer = await ask(None, "GET", f"/connector-plugins/{name}/config{query}")
    assert (answer.status, json.loads(answer.body)["message"]) == (
        400,
        f"Invalid plugin class {name}. Valid types are source, converter, header_converter, transformation, predicate.",
    )


@pytest.mark.parametrize("name", ["Nope", "Allowlist", "BasicAuthSecurityRestExtension", "Connector", "ConfigProvider"])
async def test_the_settings_of_an_unknown_plugin_are_not_found(name: str) -> None:
    answer = await ask(None, "GET", f"/connector-plugins/{name}/config")
    assert (answer.status, json.loads(answer.body)["message"]) == (404, f"Unknown plugin {name}.")


async def test_plugins_come_in_the_order_of_kafka_connect_by_kind_and_then_by_name() -> None:
    answer = await ask(None, "GET", "/connector-plugins?connectorsOnly=false")
    listed = [(plugin["type"], plugin["class"]) for plugin in json.loads(answer.body)]
    kinds = list(dict.fromkeys(kind for kind, _ in listed))
    assert kinds == ["source", "transformation", "predicate", "converter", "header_converter"]
    assert listed == sorted(listed, key=lambda plugin: (kinds.index(plugin[0]), plugin[1]))
