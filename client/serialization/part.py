"""`Part`: the (de)serializer of the keys or of the values, which the producer and the consumer call for each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .protocols import function_of, name_of_serde


class Part:
    """Calls `serde`, the (de)serializer of a client's keys or values, which is None if they stay bytes.

    `part` is "key" or "value", for error messages. `method` is the name of the method of `serde` to call.
    """

    __slots__ = ("_call", "_name", "_nulls", "_part")

    def __init__(self, part: str, serde: object, method: str) -> None:
        self._part = part
        self._name = name_of_serde(serde)
        self._nulls = serde is not None and getattr(serde, "handles_null", False)
        self._call: Callable[[str, Any], Any] | None = None if serde is None else function_of(serde, method)
