"""Format records for a terminal: as text, or as one JSON object per line."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence


def text_of(data: bytes | None) -> str:
    """Return bytes as text: decoded as UTF-8, with invalid bytes escaped. None becomes `null`."""
    return "null" if data is None else data.decode(errors="backslashreplace")


def record_as_json(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    topic: str | None = None,
    partition: int | None = None,
) -> str:
    """Return a record as one line of JSON, without the newline.

    Bytes that are valid UTF-8 become strings. Other bytes are encoded as base64, in a field whose name ends with
    `_base64`.
    """
    line: dict[str, object] = {}
    if topic is not None:
        line |= {"topic": topic, "partition": partition}
    line |= {"offset": offset, "timestamp": timestamp}
    line |= _field("key", key) | _field("value", value)
    if headers:
        line["headers"] = [{"name": name, **_field("value", content)} for name, content in headers]
    return json.dumps(line, ensure_ascii=False)


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
