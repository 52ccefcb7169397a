"""Define DefaultPrincipalData."""

from __future__ import annotations

from ..schema import Message, boolean, data, string


@data(versions="0", flexible="0+")
class DefaultPrincipalData(Message):
    """The principal of a request that a broker forwards to another broker (KIP-590). Only brokers send it."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
