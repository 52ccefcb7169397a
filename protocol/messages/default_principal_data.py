"""DefaultPrincipalData."""

from __future__ import annotations

from ..schema import Message, boolean, data, string


@data(versions="0", flexible="0+")
class DefaultPrincipalData(Message):
    """A principal, as one broker tells it another in a forwarded request (KIP-590). Between brokers only."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
