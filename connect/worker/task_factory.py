"""`TaskFactory`: builds the runner of a task with its converters, transforms, transactions and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...client.config import ProducerConfig
from ...client.errors import ConfigError
from ...settings import normal_name
from ...version import VERSION
from ..api.connector import SourceConnector
from ..api.task import SourceTask
from ..config import ConfigDef
from ..converters.converter import Converter, HeaderConverter
from ..plugin_versions import require
from ..plugins import class_name, load_class
from ..settings.connector import ConnectorConfig, plugin
from ..settings.worker import WorkerConfig
from ..stores.ids import ConnectorTaskId
from ..stores.offset_store import OffsetStore
from ..task.at_least_once import AtLeastOnceDelivery
from ..task.boundaries import Boundary, ConnectorBoundary, IntervalBoundary, PollBoundary
from ..task.delivery import Delivery
from ..task.exactly_once import ExactlyOnceDelivery, StartChecks, transactional_id
from ..task.pipeline import ErrorHandling, Pipeline
from ..task.runner import Report, TaskRunner
from ..task.topic_tracker import TopicTracker
from ..task.topics import TopicCreator, topic_groups
from ..transforms.chain import stages
from .clients import client_settings
from .listener import StatusListener
from .offset_copies import OffsetCopies
from .offset_reader import StoredOffsets
from .offset_stores import OffsetStores
from .task_context import TaskContext

_PRODUCER_DEFAULTS: Final = {"acks": "all", "delivery.timeout.ms": str(2**31 - 1), "max.block.ms": str(2**31 - 1)}
_IDEMPOTENCE: Final = "enable.idempotence"


class TaskFactory:
    """Builds the runners of tasks. A runner opens its connections only when it runs."""

    def __init__(self, config: WorkerConfig, table: ConfigDef, stores: OffsetStores, listener: StatusListener) -> None:
        self._config, self._table = config, table
        self._stores, self._listener = stores, listener

    def version(self, connector: Mapping[str, str]) -> str | None:
        """Return the version of a connector's class, or None if the class is not a source connector.

        Raises ConnectError if the class cannot be loaded, or if the settings request another version.
        """
        cls = load_class(connector["connector.class"])
        if not issubclass(cls, SourceConnector):
            return None
        require(class_name(cls), connector.get("connector.plugin.version"), cls.version())
        return cls.version()

    def runner(
        self,
        task: ConnectorTaskId,
        connector: Mapping[str, str],
        config: Mapping[str, str],
        report: Report,
        checks: StartChecks | None,
    ) -> TaskRunner:
        """Return the runner of a task, from the settings of its connector and of the task.

        Raises ConnectError, or ConfigError for invalid settings of the task's producer.
        """
        settings = ConnectorConfig(self._table, connector)
        instance: SourceTask = plugin("task.class", config["task.class"], SourceTask)
        client = (
            self.transactional_client(task, settings) if self._config.exactly_once else self._client(task, settings)
        )
        ProducerConfig.of(client)
        boundary = self._boundary(settings)
        pipeline = self._pipeline(task, settings)
        runner = TaskRunner(
            task,
            instance,
            dict(config),
            pipeline,
            report,
            start_attempts=1 + self._config["task.restart.max.attempts"],
            start_backoff_s=self._config["task.restart.backoff.ms"] / 1000,
        )

        async def delivery() -> Delivery:
            stores = await self._stores.of(task.connector, settings)
            transactions = boundary if self._config.exactly_once and isinstance(boundary, ConnectorBoundary) else None
            offsets = StoredOffsets(task.connector, stores)
            instance.context = TaskContext(dict(config), offsets, transactions, self._config.exactly_once)
            if self._config.exactly_once:
                return self._exactly_once(task, settings, client, runner, boundary, checks, stores)
            return AtLeastOnceDelivery(
                task,
                client,
                stores[0],
                pipeline,
                self._topic_creator(settings),
                runner.acknowledged,
                runner.committed,
                runner.wake,
                keep_records=runner.keeps_records,
                interval_s=self._config["offset.flush.interval.ms"] / 1000,
                timeout_s=self._config["offset.flush.timeout.ms"] / 1000,
                copies=self._copies(stores),
                tracker=self._topic_tracker(task),
            )

        runner.make_delivery = delivery
        return runner

    def transactional_client(self, task: ConnectorTaskId, settings: ConnectorConfig) -> dict[str, Any]:
        """Return the settings of a task's transactional producer, which fences the task's previous producer."""
        return {
            **self._client(task, settings),
            "transactional.id": transactional_id(self._config["group.id"], task),
            _IDEMPOTENCE: "true",
        }

    def _exactly_once(
        self,
        task: ConnectorTaskId,
        settings: ConnectorConfig,
        client: Mapping[str, Any],
        runner: TaskRunner,
        boundary: Boundary,
        checks: StartChecks | None,
        stores: Sequence[OffsetStore],
    ) -> ExactlyOnceDelivery:
        return ExactlyOnceDelivery(
            task,
            client,
            self._stores.topic_name(settings),
            boundary,
            self._topic_creator(settings),
            runner.acknowledged,
            runner.committed,
            keep_records=runner.keeps_records,
            copies=self._copies(stores),
            checks=checks,
            places=stores[0].places,
            tracker=self._topic_tracker(task),
        )

    def _copies(self, stores: Sequence[OffsetStore]) -> OffsetCopies | None:
        return self._stores.copies if len(stores) > 1 else None

    def _client(self, task: ConnectorTaskId, settings: ConnectorConfig) -> dict[str, Any]:
        return _idempotent_if_possible(
            {
                **_PRODUCER_DEFAULTS,
                "client.id": f"connector-producer-{task}",
                **client_settings(self._config, settings, "producer"),
            }
        )

    def _topic_creator(self, settings: ConnectorConfig) -> TopicCreator:
        groups = topic_groups(settings.originals) if self._config["topic.creation.enable"] else []
        return TopicCreator(groups, client_settings(self._config, settings, "admin"))

    def _topic_tracker(self, task: ConnectorTaskId) -> TopicTracker | None:
        if not self._config["topic.tracking.enable"]:
            return None
        listener = self._listener
        return TopicTracker(lambda topic: listener.topic_used(task, topic), listener.topics_in_use(task.connector))

    def _pipeline(self, task: ConnectorTaskId, settings: ConnectorConfig) -> Pipeline:
        errors = ErrorHandling(
            settings["errors.retry.timeout"],
            settings["errors.retry.delay.max.ms"],
            settings["errors.tolerance"].lower() == "all",
            settings["errors.log.enable"],
            settings["errors.log.include.messages"],
        )
        key, value, header = (self._converter(settings, kind) for kind in ("key", "value", "header"))
        assert isinstance(key, Converter)
        assert isinstance(value, Converter)
        return Pipeline(task, key, value, header, stages(settings.originals), errors)

    def _converter(self, settings: ConnectorConfig, kind: str) -> HeaderConverter:
        name = f"{kind}.converter"
        own = name in settings.originals
        base = HeaderConverter if kind == "header" else Converter
        converter: HeaderConverter = plugin(name, settings[name] if own else self._config[name], base)
        given = settings.with_prefix(f"{name}.") if own else self._config.with_prefix(f"{name}.")
        require(class_name(type(converter)), given.pop("plugin.version", None), VERSION)
        converter.configure({**given, "converter.type": kind})
        return converter

    def _boundary(self, settings: ConnectorConfig) -> Boundary:
        match settings.transaction_boundary:
            case "interval":
                interval_ms = settings["transaction.boundary.interval.ms"]
                if interval_ms == 0:
                    return PollBoundary()
                if interval_ms is None:
                    interval_ms = self._config["offset.flush.interval.ms"]
                return IntervalBoundary(interval_ms / 1000, asyncio.get_running_loop().time)
            case "connector":
                return ConnectorBoundary()
        return PollBoundary()


def _idempotent_if_possible(producer: dict[str, Any]) -> dict[str, Any]:
    """Return a producer's settings, with enable.idempotence=false if other settings need this and it is not set.

    Kafka Connect's producers are idempotent only on request, so acks=1, for example, is enough there.
    """
    try:
        ProducerConfig.of(producer)
    except ConfigError as error:
        if error.other_key == _IDEMPOTENCE and _IDEMPOTENCE not in map(normal_name, producer):
            return {**producer, _IDEMPOTENCE: "false"}
    return producer
