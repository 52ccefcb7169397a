"""`HttpSourceConnector`: polls a JSON API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...api.connector import ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...config import ConfigValue
from ...errors import ConfigValueError, ConnectError
from ..libraries import require
from ..protection import unsupported_protection
from .paging import paging
from .settings import SETTINGS, contradictions
from .task import HttpSourceTask


class HttpSourceConnector(SourceConnector):
    """Runs one task, because pages must be read one after another."""

    settings = SETTINGS
    task_class = HttpSourceTask

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Return the result of validation for each setting, and errors for settings that contradict each other."""
        outcomes = {outcome.name: outcome for outcome in SETTINGS.validate(config)}
        for name, problem in contradictions({name: outcome.value for name, outcome in outcomes.items()}).items():
            outcomes[name].errors.append(str(ConfigValueError(name, outcomes[name].value, problem)))
        remedy = "name the trusted certificates in the worker's environment variable SSL_CERT_FILE"
        outcomes.update({outcome.name: outcome for outcome in unsupported_protection(config, SETTINGS.keys, remedy)})
        try:
            require("aiohttp", "HttpSource", "connect-http")
        except ConnectError as error:
            outcomes["url"].errors.append(str(error))
        return list(outcomes.values())

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED. Exactly-once delivery requires that the API keeps the order of its records."""
        return ExactlyOnceSupport.SUPPORTED

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Raise ConnectError if an offset does not belong to the pagination of the settings; otherwise return True."""
        values = SETTINGS.parse(config)
        for partition, offset in offsets:
            if offset is None:
                continue
            if partition.keys() != {"url"}:
                raise ConnectError(
                    'a partition must be {"url": template}, where template is the value of the setting url'
                )
            paging(values, offset)
        return True
