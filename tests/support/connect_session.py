"""Define a session of a user with a worker's REST interface as data: its requests, in order.

Each step is (method, path, body). A step with `until` is repeated until its response satisfies the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from support.connect_workers import states

FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SERIALIZATION = "org.apache.kafka.common.serialization"


MALFORMED = (
    *("/connectors//", "/connectors/%zz", "/connectors/a%09b", "/connectors/%7F", "/connectors/%2e%2e"),
    *("/connectors/%FF", "/connectors/%2E/status"),
)
"""Paths for which Java's web server returns a page instead of JSON. Only the status codes are compared for them."""


class Step(NamedTuple):
    """A request of the session.

    With `until`, it is sent again until its response satisfies the condition, and only the last response counts.
    """

    method: str
    path: str
    body: Any = None
    until: Callable[[Any], bool] | None = None
    headers: Mapping[str, str | None] | None = None
    """Headers besides the content type JSON. None as a value removes the header."""
    status_only: bool = False
    """Whether only the status codes are compared, because the web server of Kafka Connect answers without JSON."""


def bodies(*given: Any) -> tuple[Any, ...]:
    """Return request bodies, which may have any type, as a tuple."""
    return given


def has_topics(active: Any) -> bool:
    return bool(active["files"]["topics"])


def session(source: str, topic: str) -> list[Step]:
    """Return the steps, for a file to read and a topic to write to."""
    config = {"connector.class": "FileStreamSource", "file": source, "topic": topic, "tasks.max": "1"}
    named = {**config, "name": "files"}
    validate = "/connector-plugins/FileStreamSource/config/validate"
    return [
        Step("GET", "/"),
        Step("GET", "/health"),
        Step("GET", "/connectors"),
        Step("GET", "/connectors?expand=info&expand=status"),
        Step("GET", "/connectors?expand=nothing"),
        Step("GET", "/connector-plugins"),
        Step("GET", "/connector-plugins?connectorsOnly=false"),
        Step("GET", "/connector-plugins/FileStreamSource/config"),
        Step("GET", f"/connector-plugins/{FILE}/config"),
        Step("GET", "/connector-plugins/Nothing/config"),
        Step("GET", "/connector-plugins/org.apache.kafka.connect.json.JsonConverter/config"),
        Step("GET", "/connector-plugins/org.apache.kafka.connect.transforms.InsertField$Value/config"),
        Step("PUT", validate, named),
        Step("PUT", validate, {"connector.class": FILE}),
        Step("PUT", validate, {"connector.class": "Other", "name": "x"}),
        Step("PUT", validate, {"name": "x"}),
        Step("PUT", "/connector-plugins/Nothing/config/validate", {"connector.class": "Nothing"}),
        Step("PUT", validate, {**named, "tasks.max": "many"}),
        Step("PUT", validate, {**named, "transforms": "a"}),
        Step("PUT", validate, {**named, "exactly.once.support": "required"}),
        Step("PUT", validate, {**named, "transaction.boundary": "connector"}),
        Step("POST", "/connectors", b"{"),
        Step("POST", "/connectors", b""),
        Step("POST", "/connectors", b"[]"),
        Step("POST", "/connectors", {"name": "files", "config": config, "bogus": 1}),
        Step("POST", "/connectors", {"name": "files"}),
        Step("POST", "/connectors", {"name": "files", "config": {}}),
        Step("POST", "/connectors", {"name": "files", "config": {"connector.class": "Nothing"}}),
        Step("POST", "/connectors", {"name": "files", "config": {"connector.class": "FileStreamSource"}}),
        Step("POST", "/connectors", {"name": "files", "config": {**config, "name": "other"}}),
        Step("POST", "/connectors", {"name": "files", "config": config, "initial_state": "SLEEPING"}),
        Step("POST", "/connectors", {"name": "", "config": config}),
        Step("GET", "/connectors/files"),
        Step("GET", "/connectors/files/status"),
        Step("GET", "/connectors/files/tasks"),
        Step("GET", "/connectors/files/tasks/0/status"),
        Step("GET", "/connectors/files/config"),
        Step("GET", "/connectors/files/offsets"),
        Step("GET", "/connectors/files/topics"),
        Step("PUT", "/connectors/files/topics/reset"),
        Step("PUT", "/connectors/files/pause"),
        Step("PUT", "/connectors/files/resume"),
        Step("PUT", "/connectors/files/stop"),
        Step("POST", "/connectors/files/restart"),
        Step("POST", "/connectors/files/restart?includeTasks=true&onlyFailed=true"),
        Step("POST", "/connectors/files/tasks/0/restart"),
        Step("PATCH", "/connectors/files/config", {"batch.size": "1"}),
        Step("PATCH", "/connectors/files/offsets", {"offsets": []}),
        Step("DELETE", "/connectors/files/offsets"),
        Step("DELETE", "/connectors/files"),
        Step("PUT", "/connectors/files/fence"),
        Step("POST", "/connectors/files/tasks", []),
        Step("POST", "/connectors", {"name": "files", "config": config, "initial_state": "STOPPED"}),
        Step("GET", "/connectors/files/status", until=states("STOPPED")),
        Step("GET", "/connectors/files/tasks"),
        Step("GET", "/connectors/files/offsets"),
        Step("PATCH", "/connectors/files/offsets", {"offsets": []}),
        Step("PATCH", "/connectors/files/offsets", {}),
        Step("PATCH", "/connectors/files/offsets", {"offsets": [{"partition": {"filename": source}}]}),
        Step(
            "PATCH", "/connectors/files/offsets", {"offsets": [{"partition": {"bogus": 1}, "offset": {"position": 1}}]}
        ),
        Step(
            "PATCH",
            "/connectors/files/offsets",
            {"offsets": [{"partition": {"filename": source}, "offset": {"position": "one"}}]},
        ),
        Step(
            "PATCH",
            "/connectors/files/offsets",
            {"offsets": [{"partition": {"filename": source}, "offset": {"position": 2}}]},
        ),
        Step("GET", "/connectors/files/offsets"),
        Step("DELETE", "/connectors/files/offsets"),
        Step("GET", "/connectors/files/offsets"),
        Step("PUT", "/connectors/files/resume"),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("POST", "/connectors", {"name": "files", "config": config}),
        Step("GET", "/connectors?expand=info&expand=status"),
        Step("GET", "/connectors/files"),
        Step("GET", "/connectors/files/config"),
        Step("GET", "/connectors/files/tasks"),
        Step("GET", "/connectors/files/tasks-config"),
        Step("GET", "/connectors/files/tasks/0/status"),
        Step("GET", "/connectors/files/tasks/1/status"),
        Step("GET", "/connectors/files/tasks/x/status"),
        Step("GET", "/connectors/files/tasks/0"),
        Step("GET", "/connectors/files/topics", until=has_topics),
        Step("PATCH", "/connectors/files/offsets", {"offsets": []}),
        Step("PATCH", "/connectors/files/offsets", {"offsets": [{"partition": {"filename": source}, "offset": None}]}),
        Step("DELETE", "/connectors/files/offsets"),
        Step("PUT", "/connectors/files/fence"),
        Step("POST", "/connectors/files/tasks", []),
        Step("PUT", "/connectors/files/config", {**config, "batch.size": "10"}),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("PUT", "/connectors/files/config", {**config, "batch.size": "none"}),
        Step("PUT", "/connectors/files/config", {**config, "name": "other"}),
        Step("PUT", "/connectors/files/config", b"{"),
        Step("PUT", "/connectors/files/config", {**config, "tasks.max": 1, "batch.size": None}),
        Step("PATCH", "/connectors/files/config", {"batch.size": "20", "tasks.max": None}),
        Step("GET", "/connectors/files/config"),
        Step("PATCH", "/connectors/files/config", {"topic": None}),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("PUT", "/connectors/files/pause"),
        Step("GET", "/connectors/files/status", until=states("PAUSED", "PAUSED")),
        Step("PUT", "/connectors/files/resume"),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("POST", "/connectors/files/restart"),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("POST", "/connectors/files/restart?onlyFailed=true"),
        Step("POST", "/connectors/files/restart?includeTasks=maybe"),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("POST", "/connectors/files/restart?includeTasks=true"),
        Step("POST", "/connectors/files/tasks/0/restart"),
        Step("POST", "/connectors/files/tasks/7/restart"),
        Step("GET", "/connectors/files/status", until=states("RUNNING", "RUNNING")),
        Step("PUT", "/connectors/files/topics/reset"),
        Step("PUT", "/connectors/files/stop"),
        Step("GET", "/connectors/files/status", until=states("STOPPED")),
        Step("GET", "/admin/loggers"),
        Step("GET", "/admin/loggers/root"),
        Step("GET", "/admin/loggers/no.such.logger"),
        Step("PUT", "/admin/loggers/org.example", {"level": "DEBUG"}),
        Step("GET", "/admin/loggers/org.example"),
        Step("PUT", "/admin/loggers/org.example?scope=cluster", {"level": "INFO"}),
        Step("PUT", "/admin/loggers/org.example?scope=bogus", {"level": "ERROR"}),
        Step("PUT", "/admin/loggers/org.example", {"level": "LOUD"}),
        Step("PUT", "/admin/loggers/org.example", {}),
        Step("PUT", "/admin/loggers/org.example", {"level": None}),
        Step("DELETE", "/connectors"),
        Step("PUT", "/connectors"),
        Step("POST", "/connectors/files"),
        Step("GET", "/nothing"),
        Step("GET", "/connectors/"),
        Step("OPTIONS", "/connectors"),
        Step("DELETE", "/connectors/files"),
        Step("DELETE", "/connectors/files"),
        Step("GET", "/connectors"),
    ]


def odd_requests(source: str, topic: str) -> list[Step]:
    """Return the requests of careless clients: other formats, malformed paths and bodies, unusual names and flags."""
    config = {"connector.class": "FileStreamSource", "file": source, "topic": topic}
    transforms = "org.apache.kafka.connect.transforms."
    plugin = "/connector-plugins/FileStreamSource/config/validate"
    offsets = "/connectors/odd/offsets"
    text, xml = {"Content-Type": "text/plain"}, {"Accept": "application/xml"}
    named = {"name": "odd", "config": config}
    return [
        # formats
        *(Step(*each, headers=text) for each in [("GET", "/"), ("GET", "/connectors"), ("DELETE", "/connectors/odd")]),
        *(Step("GET", path, headers=xml) for path in ("/", "/health", "/connectors/odd", "/admin/loggers", "/nothing")),
        Step("PUT", "/connectors/odd/pause", headers=xml),
        Step("POST", "/connectors", named, headers={"Content-Type": "application/x-www-form-urlencoded"}),
        Step("POST", "/connectors", named, headers={"Content-Type": None}),
        Step("PATCH", "/connectors/odd/config", {}, headers={"Content-Type": "application/json-patch+json"}),
        Step("GET", "/connectors", headers={"Accept": "text/html, application/json;q=0.9"}),
        *(
            Step("POST", "/connectors/odd/tasks", body)
            for body in (b"{}", b"null", b"", None, b'[{"a":1}]', b"[null]", b'[{"a":null}]', b'[{"a":{}}]', b"[1]")
        ),
        # methods and paths
        Step("HEAD", "/connectors/odd"),
        Step("OPTIONS", "/nothing"),
        Step("GET", "/connectors/odd/restart"),
        *(Step("GET", path) for path in ("/health/", "/connectors/a%20b/status/", *MALFORMED)),
        *(Step("PATCH", "/connectors/odd/config", body) for body in (None, b"", b"null", b"[]", b"{")),
        *(Step("GET", f"/connectors/odd/tasks/{task}/status") for task in ("-1", "+1", "99999999999", "x")),
        *(Step("GET", f"/connectors?{query}") for query in ("expand=", "expand=INFO", "expand=info,status", "bogus=1")),
        *(Step("DELETE", f"/connectors/odd?forward={value}") for value in ("maybe", "TRUE", "false")),
        # bodies
        *(
            Step("POST", "/connectors", body)
            for body in (b"null", b'"x"', b'{"name":{},"config":{}}', b'{"name":"odd","config":{"a":NaN}}', b"{} {}")
        ),
        Step("POST", "/connectors", {"config": {**config, "name": "odd"}}),
        Step("POST", "/connectors", {"name": "odd", "config": {**config, "name": " odd "}}),
        Step("POST", "/connectors", {**named, "initial_state": ["PAUSED"]}),
        *(
            Step("PUT", "/admin/loggers/x", body)
            for body in bodies([], None, {"level": ""}, {"level": ["INFO"]}, {"level": {}}, b"null", b"{")
        ),
        Step("GET", "/admin/loggers/ROOT"),
        # names
        *(
            step
            for name in ("a b", "ä", "a+b", "..", "日本", "a;b", "a?b", "a'b", "x" * 1000, "<x>")
            for step in (
                Step("POST", "/connectors", {"name": name, "config": config, "initial_state": "stopped"}),
                Step("GET", f"/connectors/{quote(name, safe='')}/config/"),
                Step("DELETE", f"/connectors/{quote(name, safe='')}"),
            )
        ),
        # settings that Kafka Connect accepts, or refuses before it checks the others
        *(
            step
            for settings in (
                {"topic": None},
                {"topic": ""},
                {"connector.class": ""},
                {"producer.override.linger.ms": "soon"},
                {"producer.override.enable.idempotence": "maybe"},
                {"producer.override.bogus": "soon"},
                {"producer.override.key.serializer": "x"},
                {"producer.override.partitioner.class": "x"},
                {"producer.override.value.serializer": f"{SERIALIZATION}.ByteArraySerializer"},
                {"consumer.override.key.deserializer": f"{SERIALIZATION}.ByteArrayDeserializer"},
                {"key.converter": "StringConverter "},
                {"value.converter": "\torg.apache.kafka.connect.storage.StringConverter"},
                {"tasks.max": 0},
                {"config.action.reload": "bogus"},
                {"offsets.storage.topic": " "},
                {"transforms": "a,a"},
                {"": "x"},
            )
            for step in (
                Step("PUT", plugin, {**config, "name": "odd", **settings}),
                Step("POST", "/connectors", {**named, "config": {**config, **settings}, "initial_state": "STOPPED"}),
                Step("DELETE", "/connectors/odd"),
            )
        ),
        # validation
        *(
            Step("PUT", plugin, {**config, "name": "odd", **settings})
            for settings in (
                {"batch.size": "0"},
                {"batch.size": None},
                {"key.converter": "nope"},
                {"key.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"},
                {"transforms": None},
                {"transforms": "a,"},
                {"transforms": "a", "transforms.a.type": f"{transforms}Filter", "transforms.a.predicate": "p"},
                {"transforms": "a", "transforms.a.type": f"{transforms}RegexRouter", "transforms.a.regex": "("},
                {"transforms": "a", "transforms.a.type": f"{transforms}HeaderFrom$Value"},
                {"predicates": "p", "predicates.p.type": f"{transforms}predicates.TopicNameMatches"},
                {"predicates": "p", "predicates.p.type": f"{transforms}Filter"},
                {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "0"},
                {"consumer.override.x": "1"},
            )
        ),
        *(
            Step("GET", f"/connector-plugins/{name}/config")
            for name in (
                "ByteArray",
                f"{transforms}ValueToKey",
                f"{transforms}predicates.HasHeaderKey",
                "Long",
                "Filter",
                "All",
                "EnvVarConfigProvider",
                "org.apache.kafka.common.config.provider.FileConfigProvider",
                "Allowlist",
            )
        ),
        # offsets of a stopped connector
        Step("POST", "/connectors", {**named, "initial_state": "Stopped"}),
        Step("GET", "/connectors/odd/status", until=states("STOPPED")),
        *(
            Step("PATCH", offsets, body)
            for body in bodies(
                {"offsets": {}},
                {"offsets": [None]},
                {"offsets": [{"offset": {"position": 1}}]},
                {"offsets": [{"partition": [], "offset": None}]},
                {"offsets": [{"partition": {"filename": source}, "offset": 7}]},
                {"offsets": [{"partition": {"filename": source}, "offset": {"position": 10**20}}]},
                {"offsets": [], "extra": 1},
            )
        ),
        Step("DELETE", offsets, {"x": 1}),
        *(
            Step("POST", f"/connectors/odd/restart{flags}")
            for flags in ("?includeTasks=1", "?includeTasks=", "?includeTasks=TRUE", "/")
        ),
        *(
            Step("PATCH", "/connectors/odd/config", body)
            for body in (None, b"", b"null", {"a": [1]}, {"a": 1.5, "b": True})
        ),
        Step("PATCH", "/connectors/odd/config", {"batch.size": -1}),
        Step("PATCH", "/connectors/odd/config", {"name": None}),
        Step("DELETE", "/connectors/odd/"),
    ]


def unusual_requests(source: str, topic: str) -> list[Step]:
    """Return further requests of careless clients: versions, media types, methods, path parameters, states."""
    config = {"connector.class": "FileStreamSource", "file": source, "topic": topic}
    validate = "/connector-plugins/FileStreamSource/config/validate"
    partition = {"filename": source}
    transform = {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.HoistField$Value"}
    converter = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    malformed = ("application/json/x", "/", "application/", "/json", "application/json;", "application/json;q", ",")
    return [
        # versions of plugins (KIP-891); Kafka Connect answers 500 from the second request with a wrong version on
        Step("PUT", validate, {**config, "name": "u", "connector.plugin.version": "9.9"}, status_only=True),
        *(
            Step("PUT", validate, {**config, "name": "u", "connector.plugin.version": version})
            for version in ("latest", "[0.0.1,999)", "(,999]", "[1", "(1)", "[2,1]", "[1,2],3", "[3,4],[1,2]")
        ),
        Step("PUT", validate, {**config, "name": "u", **converter, "key.converter.plugin.version": "9.9"}),
        Step("PUT", validate, {**config, "name": "u", "key.converter.plugin.version": "9.9"}),
        Step("PUT", validate, {**config, "name": "u", **transform, "transforms.a.plugin.version": "9.9"}),
        Step("POST", "/connectors", {"name": "u", "config": {**config, "connector.plugin.version": "[1"}}),
        *(
            Step("GET", f"/connector-plugins/FileStreamSource/config?version={version}")
            for version in ("9.9", "latest", "[0.0.1,999)", "[1")
        ),
        # the name in the path and the class in the settings
        *(
            Step("PUT", f"/connector-plugins/{name}/config/validate", {**config, "name": "u", "connector.class": given})
            for name, given in (
                ("FileStreamSourceConnector", "FileStreamSource"),
                ("org.apache.kafka.connect.file.FileStreamSourceConnector", "FileStreamSource"),
                ("FileStreamSource", FILE),
                ("Source", FILE),
                ("FileStream", "FileStreamSource"),
                ("Nope", "FileStreamSource"),
            )
        ),
        # a connector that runs, is paused, is stopped
        Step("PUT", "/connectors/u/config", config),
        Step("GET", "/connectors/u/status", until=states("RUNNING", "RUNNING")),
        *(
            Step("GET", "/connectors", headers={"Accept": accept})
            for accept in ("*/*;q=0", "nonsense", "application/*")
        ),
        *(Step("GET", "/connectors/u", headers={"Accept": accept}, status_only=True) for accept in malformed),
        *(
            Step("GET", "/connectors/u", headers={"Accept": f"application/*;q={weight}"}, status_only=True)
            for weight in ("2", "1.5", "0.1234", "x", "1.000", "")
        ),
        *(
            Step("PUT", "/connectors/u/config", config, headers={"Content-Type": given}, status_only=True)
            for given in (*malformed, "application/json, text/plain", "", "APPLICATION/JSON;a=b", "*/*", "text/json")
        ),
        *(
            Step("GET", "/connectors/u", headers={"Accept": accept}, status_only=True)
            for accept in ("application/json,", "text/html,", "application/json,,", ",application/json", "*/json")
        ),
        *(
            Step(method, path, body, headers={"Content-Type": given}, status_only=True)
            for given in ("application/*", "*/*", "*/json", "application/", "")
            for method, path, body in (
                ("GET", "/", None),
                ("GET", "/health", None),
                ("GET", "/connectors", None),
                ("GET", "/nothing", None),
                ("OPTIONS", "/connectors", None),
                ("PUT", "/connectors/missing/pause", None),
                ("PUT", "/connectors/missing/pause", b"{}"),
                ("POST", "/connectors", b""),
                ("POST", "/connectors", b"{}"),
                ("PATCH", "/connectors/missing/config", None),
                ("POST", "/connectors/missing/tasks", b"[]"),
            )
        ),
        *(Step(method, "/connectors/u/status") for method in ("HEAD", "OPTIONS", "TRACE", "BREW", "PATCH", "POST")),
        *(Step("OPTIONS", path) for path in ("/", "/connectors", "/connectors/u/offsets", "/admin/loggers/x")),
        *(
            Step("GET", path)
            for path in (
                "/connectors;x=1",
                "/connectors/u;x=1/status;y",
                "/connectors/u/tasks/0;a/status",
                "/connectors/u/tasks/00/status",
                "/connectors?expand=status&expand=nope&expand=status",
                "/connector-plugins?connectorsOnly=TRUE&connectorsOnly=false",
                "/connectors/u/status?forward=maybe",
            )
        ),
        Step("PATCH", "/connectors/u/offsets", {"offsets": [{"partition": partition, "offset": None}]}),
        Step("DELETE", "/connectors/u/offsets"),
        *(Step(method, "/connectors/missing/offsets", {"offsets": []}) for method in ("GET", "PATCH", "DELETE")),
        *(Step("PUT", f"/connectors/missing/{change}") for change in ("pause", "resume", "stop", "topics/reset")),
        *(Step("POST", f"/connectors/{path}") for path in ("missing/restart", "missing/tasks/0/restart")),
        *(Step("PUT", "/connectors/u/pause", body) for body in bodies([], b"garbage")),
        Step("GET", "/connectors/u/status", until=states("PAUSED", "PAUSED")),
        *(
            step
            for path in ("restart", "restart?includeTasks=true&onlyFailed=true")
            for step in (
                Step("POST", f"/connectors/u/{path}"),
                Step("GET", "/connectors/u/status", until=states("PAUSED", "PAUSED")),
            )
        ),
        Step("POST", "/connectors/u/tasks/7/restart"),
        Step("PUT", "/connectors/u/stop"),
        Step("GET", "/connectors/u/status", until=states("STOPPED")),
        Step("POST", "/connectors/u/restart"),
        Step("GET", "/connectors/u/status", until=states("STOPPED")),
        *(
            Step("PATCH", "/connectors/u/offsets", {"offsets": [entry]})
            for entry in bodies(
                {},
                {"partition": partition},
                {"partition": {}, "offset": {}},
                {"partition": {"unknown": 1}, "offset": {"position": 1}},
                {"partition": partition, "offset": {"position": None}},
                {"partition": partition, "offset": {"position": 1.5}},
                {"partition": partition, "offset": {"position": 1, "extra": 2}},
            )
        ),
        Step("DELETE", "/connectors/u/offsets"),
        Step("DELETE", "/connectors/u/offsets"),
        Step("GET", "/connectors/u/offsets/"),
        Step("DELETE", "/connectors/u"),
    ]
