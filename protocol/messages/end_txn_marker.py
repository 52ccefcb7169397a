"""EndTxnMarker."""

from __future__ import annotations

from ..schema import Message, data, int32


@data(versions="0", flexible="none")
class EndTxnMarker(Message):
    coordinator_epoch: int = int32("0+")
