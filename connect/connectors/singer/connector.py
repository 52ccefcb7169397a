"""`SingerSourceConnector`: runs a Singer tap, again and again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...api.connector import ConnectorTransactionBoundaries, ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...errors import ConnectError
from .settings import SETTINGS
from .task import SingerSourceTask


class SingerSourceConnector(SourceConnector):
    """One task, as a tap has one state."""

    settings = SETTINGS
    task_class = SingerSourceTask

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED: messages between two states are in one transaction with the second one."""
        return ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Return SUPPORTED: a transaction ends with each state."""
        return ConnectorTransactionBoundaries.SUPPORTED

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Refuse what is no state of a tap."""
        for partition, offset in offsets:
            if partition.keys() != {"tap"}:
                raise ConnectError('a partition is {"tap": name}')
            if offset is None:
                continue
            try:
                json.loads(offset["state"])
            except (KeyError, TypeError, ValueError):
                raise ConnectError('an offset is {"state": text}, with the JSON of the tap\'s state') from None
        return True
