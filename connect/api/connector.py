"""`SourceConnector`: divides the work of one source among tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Protocol

from ..config import ConfigDef, ConfigValue
from ..version import VERSION
from .offsets import OffsetReader
from .records import SourceOffset, SourcePartition
from .task import SourceTask


class ExactlyOnceSupport(Enum):
    """Whether a connector can do exactly-once with its settings (KIP-618)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class ConnectorTransactionBoundaries(Enum):
    """Whether a connector can say where transactions end (KIP-618)."""

    SUPPORTED = "SUPPORTED"
    UNSUPPORTED = "UNSUPPORTED"


class SourceConnectorContext(Protocol):
    """What the worker gives to a connector before it starts."""

    @property
    def offsets(self) -> OffsetReader:
        """The connector's committed offsets."""

    def request_task_reconfiguration(self) -> None:
        """Have the worker ask for `task_configs` again, as the source has changed; callable from any thread."""

    def raise_error(self, error: BaseException) -> None:
        """Make the connector FAILED, for a failure noticed in the background; callable from any thread."""


class SourceConnector:
    """Knows the source as a whole; the tasks that it configures read it.

    A connector whose source has one part names its `settings` and its `task_class`, and nothing else::

        class Lines(SourceConnector):
            settings = ConfigDef(ConfigKey("file", Type.STRING, REQUIRED, Importance.HIGH, "The file to read."))
            task_class = LinesTask

    Methods may be `async def`, or a plain `def`, which then runs in a thread. The worker sets `context`, then calls
    `start` once, `task_configs` at the start and after each request for reconfiguration, and `stop` once.
    """

    context: SourceConnectorContext
    settings: ClassVar[ConfigDef] = ConfigDef()
    """The connector's own settings."""
    task_class: type[SourceTask]
    """The class of the tasks."""
    config: Mapping[str, str]
    """The settings as text; set by `start`."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the connector's settings."""
        return cls.settings

    @classmethod
    def version(cls) -> str:
        """Return the version that `GET /connector-plugins` shows; by default that of what is built in."""
        return VERSION if cls.__module__.startswith(__name__.removesuffix("api.connector")) else "undefined"

    def validate(self, config: Mapping[str, str]) -> Awaitable[list[ConfigValue]] | list[ConfigValue]:
        """Return the outcome for each setting; override it to check settings against each other or the source."""
        return self.config_def().validate(config)

    def start(self, config: Mapping[str, str]) -> Awaitable[None] | None:
        """Keep the settings; override it to watch a source whose tasks change. Raises ConfigValueError."""
        self.config_def().parse(config)
        self.config = dict(config)
        return None

    def task_configs(self, max_tasks: int) -> Awaitable[Sequence[Mapping[str, str]]] | Sequence[Mapping[str, str]]:
        """Return the settings of each task, of at most `max_tasks`; fewer where the source has fewer parts.

        By default there is one task, with the settings of the connector.
        """
        return [self.config]

    def stop(self) -> Awaitable[None] | None:
        """End what `start` began."""
        return None

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Return whether exactly-once is possible with these settings; None: unknown (KIP-618)."""
        return None

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Return whether tasks use the transaction context with these settings (KIP-618)."""
        return ConnectorTransactionBoundaries.UNSUPPORTED

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> Awaitable[bool] | bool:
        """Check offsets that a user wants to set, None being a reset (KIP-875); raises ConnectError to refuse them.

        Returns whether the connector has checked them.
        """
        return False
