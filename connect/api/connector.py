"""`SourceConnector`: divides the work of one source among tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Protocol

from ...version import VERSION
from ..config import ConfigDef, ConfigValue
from .offsets import OffsetReader
from .records import SourceOffset, SourcePartition
from .task import SourceTask


class ExactlyOnceSupport(Enum):
    """Whether a connector supports exactly-once delivery with its settings (KIP-618)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorTransactionBoundaries(Enum):
    """Whether a connector's tasks can define where transactions end (KIP-618)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class SourceConnectorContext(Protocol):
    """The worker's services for a connector, available before the connector starts."""

    @property
    def offsets(self) -> OffsetReader:
        """The connector's committed offsets."""

    def request_task_reconfiguration(self) -> None:
        """Ask the worker to call `task_configs` again because the source has changed. May be called from any thread."""

    def raise_error(self, error: BaseException) -> None:
        """Make the connector FAILED after an error in the background. May be called from any thread."""


class SourceConnector:
    """A connector: represents the source as a whole and configures the tasks that read it.

    A connector whose source has a single part needs only `settings` and `task_class`::

        class Lines(SourceConnector):
            settings = ConfigDef(ConfigKey("file", Type.STRING, REQUIRED, Importance.HIGH, "The file to read."))
            task_class = LinesTask

    Methods may be `async def`, or plain `def`: the worker runs a plain method in a thread. The worker sets `context`,
    then calls `start` once, `task_configs` at the start and after each request for reconfiguration, and `stop` once.
    """

    context: SourceConnectorContext
    settings: ClassVar[ConfigDef] = ConfigDef()
    """The definitions of the connector's settings, without those that all connectors share."""
    task_class: type[SourceTask]
    """The class of the connector's tasks."""
    config: Mapping[str, str]
    """The connector's settings as text; set by `start`."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definitions of the connector's settings."""
        return cls.settings

    @classmethod
    def version(cls) -> str:
        """Return the version that `GET /connector-plugins` shows.

        By default, this is oncelog's version for a built-in class, and "undefined" for any other class.
        """
        return VERSION if cls.__module__.startswith(__name__.removesuffix("api.connector")) else "undefined"

    def validate(self, config: Mapping[str, str]) -> Awaitable[list[ConfigValue]] | list[ConfigValue]:
        """Return the result of validation for each setting.

        Override this method to check settings against each other or against the source.
        """
        return self.config_def().validate(config)

    def start(self, config: Mapping[str, str]) -> Awaitable[None] | None:
        """Check and keep the settings. An override may also watch the source for changes. Raises ConfigValueError."""
        self.config_def().parse(config)
        self.config = dict(config)
        return None

    def task_configs(self, max_tasks: int) -> Awaitable[Sequence[Mapping[str, str]]] | Sequence[Mapping[str, str]]:
        """Return the settings of at most `max_tasks` tasks. Return fewer if the source has fewer parts.

        By default there is one task with the connector's settings.
        """
        return [self.config]

    def stop(self) -> Awaitable[None] | None:
        """Stop what `start` has started, and release resources."""
        return None

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Return whether exactly-once delivery is possible with these settings, or None if unknown (KIP-618)."""
        return None

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Return whether, with these settings, tasks define the transaction boundaries (KIP-618)."""
        return ConnectorTransactionBoundaries.UNSUPPORTED

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> Awaitable[bool] | bool:
        """Check the offsets that a user wants to set; raise ConnectError to refuse them (KIP-875).

        An offset of None resets its partition. Return whether the connector has checked the offsets; by default False.
        """
        return False
