"""`Part`: the (de)serializer of the keys or of the values, which the producer and the consumer call for each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .protocols import function_of, name_of_serde


class Part:
    """What a client knows of the (de)serializer for `part`, "key" or "value". None: they stay bytes.

    `method` is the method of `serde` that is called.
    """

    __slots__ = ("_call", "_name", "_nulls", "_part")

    def __init__(self, part: str, serde: object, method: str) -> None:
        self._part = part
        self._name = name_of_serde(serde)
        self._nulls = serde is not None and getattr(serde, "handles_null", False)
        self._call: Callable[[str, Any], Any] | None = None if serde is None else function_of(serde, method)
