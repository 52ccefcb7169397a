"""Determines the next request, and the source offset after each record. Each kind of pagination has its own class.

Offsets count records within a page, so that a task can continue after any record. The last page may grow at its end,
and new pages may follow it, but records that were read must stay in place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from ...errors import ConnectError
from . import pointers
from .settings import CURSOR, LINK, NONE, OFFSET, PAGE

if TYPE_CHECKING:
    from .requests import Answer

log = logging.getLogger(__name__)

_CURSORS: Final = (str, int, float, type(None))
"""The types of a cursor in an offset."""


class Progress(NamedTuple):
    """New records, each with the offset after it. If `more` is true, the next request follows immediately."""

    records: list[tuple[Any, dict[str, Any]]]
    more: bool


class Paging(Protocol):
    """The current position in the API's records."""

    def url(self) -> str:
        """Return the URL of the next request."""

    def take(self, answer: Answer, records: list[Any]) -> Progress:
        """Move the position past the records of a response. Raises ConnectError for an inconsistent response."""


def paging(settings: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Paging:
    """Return the pagination, starting at `offset`. Raises ConnectError if the offset does not belong to it."""
    kinds: dict[str, type[Pages | CountedRecords | RecordCursor]] = {
        NONE: Pages, LINK: LinkedPages, CURSOR: CursorPages, PAGE: NumberedPages, OFFSET: CountedRecords,
    }  # fmt: skip
    kind = kinds.get(settings["pagination"], RecordCursor)
    try:
        return kind(settings, offset)
    except (KeyError, TypeError):
        raise ConnectError(
            f"the offset {dict(offset or {})} does not belong to pagination {settings['pagination']}: stop the "
            "connector, and delete or alter its offsets"
        ) from None


class Pages:
    """A single page that grows at its end. The offset is {"records": number of records read}.

    Subclasses read several pages.
    """

    def __init__(self, settings: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        self._settings = settings
        self._template: str = settings["url"]
        self._count = 0 if offset is None else _whole(offset["records"])
        self._place = self._first() if offset is None else self._at(offset)

    def url(self) -> str:
        """Return the URL of the page."""
        return self._template

    def take(self, answer: Answer, records: list[Any]) -> Progress:
        """Return the records of the response that were not read before.

        After the last record of a page, the position moves to the next page, if there is one.
        """
        if len(records) < self._count:
            raise ConnectError(
                f"{answer.url} has {len(records)} records, but {self._count} were read before: records have "
                "disappeared, so the position to continue from is unknown. Stop the connector, then delete or alter "
                "its offsets"
            )
        new = [
            (record, {**self._place, "records": count})
            for count, record in enumerate(records[self._count :], self._count + 1)
        ]
        following = self._next(answer, records)
        if following is None or following == self._place:
            self._count = len(records)
            return Progress(new, False)
        self._place, self._count = following, 0
        if new:
            new[-1] = new[-1][0], {**following, "records": 0}
        return Progress(new, bool(records))

    def _first(self) -> dict[str, Any]:
        return {}

    def _at(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        """Return the offset's place. Raises KeyError or TypeError if the offset does not belong to this pagination."""
        return {}

    def _next(self, answer: Answer, records: list[Any]) -> dict[str, Any] | None:
        return None


class LinkedPages(Pages):
    """Pages that link to the next page in the header Link. The offset is {"url", "records"}."""

    def url(self) -> str:
        """Return the URL of the page."""
        return str(self._place["url"] or self._template)

    def _first(self) -> dict[str, Any]:
        return {"url": None}

    def _at(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        url = _either(offset["url"], str, type(None))
        if url is not None:
            self._require_same_server(url, "the offset has the page")
        return {"url": url}

    def _next(self, answer: Answer, records: list[Any]) -> dict[str, Any] | None:
        if answer.next_link is None:
            return None
        url = urljoin(answer.url, answer.next_link)
        self._require_same_server(url, f"{answer.url} links to the next page")
        return {"url": url}

    def _require_same_server(self, url: str, where: str) -> None:
        if _origin(url) != _origin(self._template):
            raise ConnectError(
                f"{where} {url}, which is on another server than the setting url. The headers of headers.file are not "
                "sent to other servers. Change the setting url"
            )


class CursorPages(Pages):
    """Pages that contain the cursor of the next page. The offset is {"cursor", "records"}."""

    def url(self) -> str:
        """Return the URL of the page."""
        return filled(self._template, self._place["cursor"])

    def _first(self) -> dict[str, Any]:
        return {"cursor": self._settings["cursor.initial"]}

    def _at(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        return {"cursor": _either(offset["cursor"], *_CURSORS)}

    def _next(self, answer: Answer, records: list[Any]) -> dict[str, Any] | None:
        cursor = pointers.resolve(pointers.parse(self._settings["cursor.pointer"]), answer.document)
        if cursor is pointers.MISSING or cursor is None or cursor is False or cursor == "":
            return None
        return {"cursor": _cursor(answer.url, cursor)}


class NumberedPages(Pages):
    """Numbered pages. Only a full page has a next page. The offset is {"page", "records"}."""

    def url(self) -> str:
        """Return the URL of the page."""
        return self._template.replace("{page}", str(self._place["page"]))

    def _first(self) -> dict[str, Any]:
        return {"page": self._settings["page.first"]}

    def _at(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        return {"page": _whole(offset["page"])}

    def _next(self, answer: Answer, records: list[Any]) -> dict[str, Any] | None:
        full = len(records) >= self._settings["page.size"]
        return {"page": self._place["page"] + 1} if full else None


class CountedRecords:
    """Records that are requested by position. The offset is {"offset": position}, the number of records read."""

    def __init__(self, settings: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        self._template: str = settings["url"]
        self._count = 0 if offset is None else _whole(offset["offset"])

    def url(self) -> str:
        """Return the URL of the next records."""
        return self._template.replace("{offset}", str(self._count))

    def take(self, answer: Answer, records: list[Any]) -> Progress:
        """Return all records of the response."""
        new = [(record, {"offset": count}) for count, record in enumerate(records, self._count + 1)]
        self._count += len(records)
        return Progress(new, bool(new))


class RecordCursor:
    """Records that are requested with the cursor of the last record that was read.

    The offset is {"cursor", "equal"}, where "equal" is the number of records read with this cursor.

    With an inclusive cursor, a response begins with the records that share the last cursor. If these records alone fill
    a response, no request reaches the records after them. `page.size` distinguishes such a full response from one that
    contains only the API's last records.
    """

    def __init__(self, settings: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        self._template: str = settings["url"]
        self._steps = pointers.parse(settings["cursor.pointer"])
        self._inclusive = settings["cursor.inclusive"]
        self._page_size: int = settings["page.size"]
        self._largest = 0
        self._warned = False
        self._cursor = settings["cursor.initial"] if offset is None else _either(offset["cursor"], *_CURSORS)
        self._equal = 0 if offset is None else _whole(offset.get("equal", 1))

    def url(self) -> str:
        """Return the URL of the next records."""
        return filled(self._template, self._cursor)

    def take(self, answer: Answer, records: list[Any]) -> Progress:
        """Return the records of the response without those at its beginning that were read before.

        Raises ConnectError for a record without a cursor, and for a full page in which all records were read before.
        """
        skip = self._equal if self._inclusive else 0
        new = []
        for record in records:
            cursor = pointers.resolve(self._steps, record)
            if cursor is pointers.MISSING or cursor is None:
                raise ConnectError(
                    f"a record of {answer.url} has no cursor at /{'/'.join(self._steps)}: {record!r:.200}"
                )
            cursor = _cursor(answer.url, cursor)
            if skip and cursor == self._cursor:
                skip -= 1
                continue
            skip = 0
            self._equal = self._equal + 1 if cursor == self._cursor else 1
            self._cursor = cursor
            new.append((record, {"cursor": cursor, "equal": self._equal}))
        if not new:
            self._check_room(answer.url, len(records))
        self._largest = max(self._largest, len(records))
        return Progress(new, bool(new))

    def _check_room(self, url: str, count: int) -> None:
        if self._page_size and count >= self._page_size:
            raise ConnectError(
                f"{url} has {count} records, which is page.size, and all were read before: a full page of records has "
                f"the cursor {self._cursor!r}, so no request reaches the records after them. Request more records in "
                "url and raise page.size, or use a cursor that fewer records share"
            )
        if not self._page_size and 1 < count == self._largest and not self._warned:
            self._warned = True
            log.warning(
                "%s has %d records, and all were read before. No earlier response has had more records. If the API "
                "never returns more in one response, later records are never read. To make the task fail in this case, "
                "set page.size",
                url,
                count,
            )


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Return the scheme, host and port of a URL; None if it has no valid port."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        return None
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme)


def filled(template: str, cursor: Any) -> str:
    """Return the URL with the cursor filled in. If the cursor is None, leave out the query parameters that need it."""
    if cursor is not None:
        return template.replace("{cursor}", quote(str(cursor), safe=""))
    parts = urlsplit(template)
    query = "&".join(each for each in parts.query.split("&") if "{cursor}" not in each)
    return urlunsplit(parts._replace(query=query)).replace("{cursor}", "")


def _cursor(url: str, value: Any) -> str | int | float:
    """Return a cursor as offsets store it: a Decimal or a whole number beyond 64 bits becomes text.

    Raises ConnectError.
    """
    if isinstance(value, Decimal) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConnectError(f"the cursor of {url} is neither text nor a number: {value!r:.200}; change cursor.pointer")
    return value


def _whole(value: Any) -> int:
    """Return a whole number that is not negative. Raises TypeError."""
    number: int = _either(value, int)
    if number < 0:
        raise TypeError(value)
    return number


def _either(value: Any, *types: type) -> Any:
    """Return the value if it has one of the types; in JSON, true and false are no numbers. Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, types):
        raise TypeError(value)
    return value
