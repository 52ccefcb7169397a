"""The settings of `SingerSourceConnector`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, Type, at_least
from ...errors import ConfigValueError

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _command(name: str, value: Any) -> None:
    try:
        parts = shlex.split(value or "")
    except ValueError as error:
        raise ConfigValueError(name, value, f"is not a valid command: {error}") from None
    if not parts:
        raise ConfigValueError(name, value, "must name the program of a tap, such as tap-github")


def _json_object(name: str, value: Any) -> None:
    if value is None:
        return
    try:
        given = json.loads(value.value)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigValueError(name, "[hidden]", "is not a JSON object")


SETTINGS = ConfigDef(
    ConfigKey(
        "tap.command", Type.STRING, REQUIRED, _HIGH,
        "The tap and its arguments, such as tap-github or 'python -m my_tap --fast'. --config, --state and --catalog "
        "are added.", _command,
    ),
    ConfigKey("tap.config", Type.PASSWORD, None, _HIGH, "The tap's configuration as JSON.", _json_object),
    ConfigKey("tap.config.file", Type.STRING, None, _HIGH, "File with the configuration, instead of tap.config."),
    ConfigKey("tap.catalog.file", Type.STRING, None, _MEDIUM, "File with the catalog that selects streams."),
    ConfigKey("topic.prefix", Type.STRING, "", _HIGH,
              "Prefix of topics: the topic of a stream is the prefix and the stream's name."),
    ConfigKey("poll.interval.ms", Type.LONG, 60_000, _MEDIUM, "Wait between two runs of the tap, in ms.", at_least(0)),
    ConfigKey(
        "batch.size", Type.INT, 2000, _LOW,
        "With transaction.boundary=connector: records per batch; a transaction ends at each STATE message of the tap. "
        "Otherwise, one batch has all records up to a STATE message.",
        at_least(1),
    ),
    ConfigKey(
        "max.records.per.state", Type.INT, 100_000, _LOW,
        "Maximum records between two STATE messages; kept in memory unless transaction.boundary=connector.",
        at_least(1),
    ),
    ConfigKey("max.message.bytes", Type.INT, 16 << 20, _LOW, "Maximum size of a message in bytes.", at_least(1024)),
    ConfigKey(
        "tap.attempts", Type.INT, 3, _LOW, "Consecutive failed runs after which the task fails.", at_least(1)
    ),
    ConfigKey(
        "tap.stop.timeout.ms", Type.LONG, 5_000, _LOW,
        "Maximum time for the tap to end after SIGTERM, in ms; then it is killed.", at_least(0),
    ),
)  # fmt: skip


def tap_name(values: Mapping[str, Any]) -> str:
    """Return the tap's name in the source partition: the program of tap.command, without directory and arguments."""
    return shlex.split(values["tap.command"])[0].rpartition("/")[2]
