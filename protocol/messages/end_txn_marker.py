"""Define EndTxnMarker."""

from __future__ import annotations

from ..schema import Message, data, int32


@data(versions="0", flexible="none")
class EndTxnMarker(Message):
    """The value of a control record that ends a transaction in one partition. The record's key says whether the
    transaction is committed or aborted. The coordinator epoch prevents a replaced coordinator from writing markers.
    """

    coordinator_epoch: int = int32("0+")
