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
        "URL of the records, with the placeholder of the pagination: {cursor}, {page} or {offset}. While there is "
        "no cursor, query parameters with {cursor} are omitted.", _url, "Request",
    ),
    ConfigKey("topic", Type.STRING, REQUIRED, _HIGH, "The topic to write to.", NonEmptyString(), "Records"),
    ConfigKey(
        "headers.file", Type.STRING, None, _MEDIUM,
        "File with the requests' headers, one `Name: value` per line; read again for each request.", None,
        "Request",
    ),
    ConfigKey(
        "records.pointer", Type.STRING, "", _HIGH,
        "JSON pointer to the list of records in a response, such as /data/items; empty: the whole response.", _pointer,
        "Records",
    ),
    ConfigKey("key.pointer", Type.STRING, None, _MEDIUM, "JSON pointer to the key in a record; by default no key.",
              _pointer, "Records"),
    ConfigKey(
        "pagination", Type.STRING, NONE, _HIGH,
        "How to find the next records. none: the response is a list that grows. link: the header Link, rel=next. "
        "cursor: a value in the response. page: the number of the page. offset: the number of records. record: a value "
        "in the last record.", OneOf(NONE, LINK, CURSOR, PAGE, OFFSET, RECORD), "Pagination",
    ),
    ConfigKey(
        "cursor.pointer", Type.STRING, "", _MEDIUM,
        "JSON pointer to the cursor: in the response (pagination cursor) or in a record (pagination record).", _pointer,
        "Pagination",
    ),
    ConfigKey("cursor.initial", Type.STRING, None, _LOW, "Cursor of the first request.", None, "Pagination"),
    ConfigKey(
        "cursor.inclusive", Type.BOOLEAN, False, _LOW,
        "With pagination record: whether responses begin with the records that have the cursor. If false, each record "
        "must have a cursor of its own, because further records with a response's last cursor are never read.", None,
        "Pagination",
    ),
    ConfigKey("page.first", Type.INT, 1, _LOW, "Number of the first page.", at_least(0), "Pagination"),
    ConfigKey(
        "page.size", Type.INT, 0, _MEDIUM,
        "Number of records in a full page; required with pagination page. With pagination record and an inclusive "
        "cursor, the task fails if a full page has only records that were read before.", at_least(0), "Pagination",
    ),
    ConfigKey("poll.interval.ms", Type.INT, 10_000, _MEDIUM,
              "Wait before the next request once all records are read, in ms.",
              at_least(1), "Request"),
    ConfigKey("request.timeout.ms", Type.INT, 30_000, _LOW,
              "Maximum wait for a response, in ms.", at_least(1), "Request"),
    ConfigKey("max.body.bytes", Type.INT, 16 << 20, _LOW,
              "Maximum size of a response, in bytes.", at_least(1), "Request"),
    ConfigKey(
        "retry.attempts", Type.INT, 10, _LOW,
        "Attempts at a request before the task fails. A request is repeated if it gets no response or the status 408, "
        "425, 429 or 5xx; after any other error, the task fails at once.", at_least(1), "Request",
    ),
    ConfigKey("retry.backoff.ms", Type.LONG, 1_000, _LOW,
              "Wait before the second attempt, in ms. It doubles with each attempt.", at_least(0), "Request"),
    ConfigKey("retry.backoff.max.ms", Type.LONG, 300_000, _LOW,
              "Maximum wait before an attempt, in ms, even if the header Retry-After asks for more.", at_least(0),
              "Request"),
)  # fmt: skip


def contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of settings that contradict each other. The keys are the names of the settings to change."""
    pagination = values.get("pagination")
    problems = {}
    placeholder = PLACEHOLDERS.get(str(pagination))
    if placeholder is not None and placeholder not in str(values.get("url")):
        problems["url"] = f"must contain {placeholder} with pagination {pagination}"
    if pagination in (CURSOR, RECORD) and not values.get("cursor.pointer"):
        problems["cursor.pointer"] = f"must be set with pagination {pagination}"
    if pagination == PAGE and not values.get("page.size"):
        problems["page.size"] = "must be set with pagination page, because only a full page has a next page"
    return problems
