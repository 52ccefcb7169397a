"""DefaultPrincipalData."""

from __future__ import annotations

from ..schema import Message, boolean, data, string


@data(versions="0", flexible="0+")
class DefaultPrincipalData(Message):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
