"""EndTxnMarker."""

from __future__ import annotations

from ..schema import Message, data, int32


@data(versions="0", flexible="none")
class EndTxnMarker(Message):
    """The value of a control record that ends a transaction in one partition; the record's key says commit or abort.
    Its epoch keeps a coordinator that was replaced from writing markers.
    """

    coordinator_epoch: int = int32("0+")
