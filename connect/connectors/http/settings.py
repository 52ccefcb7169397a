"""The settings of `HttpSourceConnector`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, OneOf, Type, at_least
from ...errors import ConfigValueError
from . import pointers

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

NONE, LINK, CURSOR, PAGE, OFFSET, RECORD = "none", "link", "cursor", "page", "offset", "record"
PLACEHOLDERS: Final = {CURSOR: "{cursor}", PAGE: "{page}", OFFSET: "{offset}", RECORD: "{cursor}"}


def _pointer(name: str, value: str | None) -> None:
    try:
        pointers.parse(value or "")
    except ValueError as error:
        raise ConfigValueError(name, value, str(error)) from None


def _url(name: str, value: str | None) -> None:
    parts = urlsplit(value or "")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigValueError(name, value, "must be an http:// or https:// address")


SETTINGS = ConfigDef(
    ConfigKey(
        "url", Type.STRING, REQUIRED, _HIGH,
        "Address of the records, with the placeholder of the pagination: {cursor}, {page} or {offset}. As long as "
        "there is no cursor, parameters of the query with {cursor} are left out.", _url, "Request",
    ),
    ConfigKey("topic", Type.STRING, REQUIRED, _HIGH, "The topic to write to.", NonEmptyString(), "Records"),
    ConfigKey(
        "headers.file", Type.STRING, None, _MEDIUM,
        "File with headers of the requests, a line `Name: value` for each; read again for each request.", None,
        "Request",
    ),
    ConfigKey(
        "records.pointer", Type.STRING, "", _HIGH,
        "JSON pointer to the list of records in an answer, such as /data/items; empty: the whole answer.", _pointer,
        "Records",
    ),
    ConfigKey("key.pointer", Type.STRING, None, _MEDIUM, "JSON pointer to the key in a record; by default no key.",
              _pointer, "Records"),
    ConfigKey(
        "pagination", Type.STRING, NONE, _HIGH,
        "How to go on. none: one list that grows. link: by the header Link with rel=next. cursor: by a value in the "
        "answer. page: by the number of the page. offset: by the number of records. record: by a value in the last "
        "record.", OneOf(NONE, LINK, CURSOR, PAGE, OFFSET, RECORD), "Pagination",
    ),
    ConfigKey(
        "cursor.pointer", Type.STRING, "", _MEDIUM,
        "JSON pointer to the cursor: in the answer (pagination cursor) or in a record (pagination record).", _pointer,
        "Pagination",
    ),
    ConfigKey("cursor.initial", Type.STRING, None, _LOW, "Cursor of the first request.", None, "Pagination"),
    ConfigKey(
        "cursor.inclusive", Type.BOOLEAN, False, _LOW,
        "With pagination record: whether answers begin with the record of the cursor itself.", None, "Pagination",
    ),
    ConfigKey("page.first", Type.INT, 1, _LOW, "Number of the first page.", at_least(0), "Pagination"),
    ConfigKey("page.size", Type.INT, 0, _MEDIUM, "Records of a full page; needed with pagination page.", at_least(0),
              "Pagination"),
    ConfigKey("poll.interval.ms", Type.INT, 10_000, _MEDIUM, "Wait after an answer that nothing follows.",
              at_least(1), "Request"),
    ConfigKey("request.timeout.ms", Type.INT, 30_000, _LOW, "Longest wait for an answer.", at_least(1), "Request"),
    ConfigKey("max.body.bytes", Type.INT, 16 << 20, _LOW, "Largest answer.", at_least(1), "Request"),
    ConfigKey(
        "retry.attempts", Type.INT, 10, _LOW,
        "Attempts at a request that fails (no answer, 408, 425, 429, 5xx); then the task fails.", at_least(1),
        "Request",
    ),
    ConfigKey("retry.backoff.ms", Type.LONG, 1_000, _LOW, "Wait before the second attempt; it doubles.", at_least(0),
              "Request"),
    ConfigKey("retry.backoff.max.ms", Type.LONG, 300_000, _LOW,
              "Longest wait before an attempt, also where the header Retry-After wants a longer one.", at_least(0),
              "Request"),
)  # fmt: skip


def contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the parsed settings as a whole, by the setting to change."""
    pagination = values.get("pagination")
    problems = {}
    placeholder = PLACEHOLDERS.get(str(pagination))
    if placeholder is not None and placeholder not in str(values.get("url")):
        problems["url"] = f"must contain {placeholder} with pagination {pagination}"
    if pagination in (CURSOR, RECORD) and not values.get("cursor.pointer"):
        problems["cursor.pointer"] = f"must be set with pagination {pagination}"
    if pagination == PAGE and not values.get("page.size"):
        problems["page.size"] = "must be set with pagination page, as only a full page has a next one"
    return problems
