"""What the base class of connectors offers, and how connectors of others are found."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

import pytest
from oncelog.connect import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigValueError,
    Importance,
    SourceConnector,
    SourceRecord,
    SourceTask,
    Type,
)
from oncelog.connect.connectors.heartbeat.connector import HeartbeatSourceConnector
from oncelog.connect.plugins import ENTRY_POINTS, PluginKind, _entry_points, installed, load_class
from oncelog.version import VERSION


class OwnTask(SourceTask):
    def start(self, config: object) -> None:
        pass

    def poll(self) -> Iterable[SourceRecord] | None:
        return None


class Own(SourceConnector):
    settings = ConfigDef(ConfigKey("from", Type.STRING, REQUIRED, Importance.HIGH, "Where from."))
    task_class = OwnTask


def test_a_connector_of_one_part_names_its_settings_and_its_task_alone() -> None:
    connector = Own()
    connector.start({"from": "a", "name": "own"})
    assert connector.task_configs(3) == [{"from": "a", "name": "own"}]
    assert (Own.config_def(), connector.task_class, Own.version()) == (Own.settings, OwnTask, "undefined")
    with pytest.raises(ConfigValueError, match='Missing required configuration "from"'):
        Own().start({})


@pytest.mark.parametrize("name", ["DirectorySource", "FileStreamSource", "PostgresSource", "SingerSource", "SqlSource"])
async def test_the_offset_of_any_source_partition_can_be_reset(name: str) -> None:
    connector = load_class(name)()
    altered = connector.alter_offsets({"file": "f"}, [({"of": "another connector of that name"}, None)])
    assert altered if isinstance(altered, bool) else await altered


def test_what_is_built_in_has_the_version_of_the_worker() -> None:
    assert HeartbeatSourceConnector.version() == VERSION


def test_a_connector_is_found_by_its_path_and_by_an_entry_point(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    assert load_class(f"{__name__}:Own") is Own
    point = importlib.metadata.EntryPoint("OwnSource", f"{__name__}:Own", ENTRY_POINTS)
    reads: list[str] = []

    def entry_points(group: str) -> importlib.metadata.EntryPoints:
        reads.append(group)
        return importlib.metadata.EntryPoints([point]).select(group=group)

    monkeypatch.setattr("oncelog.connect.plugins.entry_points", entry_points)
    _entry_points.cache_clear()
    request.addfinalizer(_entry_points.cache_clear)
    assert load_class("OwnSource") is Own
    assert (f"{__name__}:Own", PluginKind.SOURCE) in installed([PluginKind.SOURCE])
    assert reads == [ENTRY_POINTS], "to read them takes long"
