"""`SingerSourceConnector`: runs a Singer tap repeatedly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...api.connector import ConnectorTransactionBoundaries, ExactlyOnceSupport, SourceConnector
from ...api.records import SourceOffset, SourcePartition
from ...errors import ConnectError
from .settings import SETTINGS
from .task import SingerSourceTask


class SingerSourceConnector(SourceConnector):
    """Runs one task, because a tap has a single state."""

    settings = SETTINGS
    task_class = SingerSourceTask

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED, because records are committed in one transaction with the state that follows them."""
        return ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Return SUPPORTED, because a transaction ends with each state."""
        return ConnectorTransactionBoundaries.SUPPORTED

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Raise ConnectError if an offset is not a state of a tap; otherwise return True."""
        for partition, offset in offsets:
            if offset is None:
                continue  # any partition may be reset
            if partition.keys() != {"tap"}:
                raise ConnectError('a partition must be {"tap": name}')
            try:
                json.loads(offset["state"])
            except (KeyError, TypeError, ValueError):
                raise ConnectError(
                    'an offset must be {"state": text}, where text is the JSON of the tap\'s state'
                ) from None
        return True
