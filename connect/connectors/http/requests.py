"""`Requests`: sends GET requests with headers from a file, limits the response size, and repeats failed requests."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from ...data.json_text import loads_exact
from ...errors import ConnectError, DataError

log = logging.getLogger(__name__)

_PASSING: Final = (408, 425, 429)


class Answer(NamedTuple):
    """The JSON of a response, and the URL of the next page (from the header Link) or None.

    A number with a fraction or exponent is a Decimal if a float would change its value.
    """

    url: str
    document: Any
    next_link: str | None


class _PassingError(Exception):
    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Requests:
    """Sends the requests of one task."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=settings["request.timeout.ms"] / 1000),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def get(self, url: str) -> Answer:
        """Return the response to a GET request. Wait and retry after temporary failures. Raises ConnectError."""
        attempts = self._settings["retry.attempts"]
        for attempt in range(1, attempts + 1):
            try:
                return await self._once(url)
            except _PassingError as error:
                if attempt == attempts:
                    raise ConnectError(f"GET {url} failed {attempts} times, most recently: {error}") from error
                longest_s = self._settings["retry.backoff.max.ms"] / 1000
                wait_s = self._settings["retry.backoff.ms"] / 1000 * 2 ** min(attempt - 1, 20)
                wait_s = min(wait_s if error.wait_s is None else error.wait_s, longest_s)
                log.warning("GET %s failed; next attempt in %g s: %s", url, wait_s, error)
                await asyncio.sleep(wait_s)
        raise AssertionError("retry.attempts is at least 1")

    async def close(self) -> None:
        """Close the HTTP session."""
        await self._session.close()

    async def _once(self, url: str) -> Answer:
        headers = {"Accept": "application/json", **await asyncio.to_thread(self._headers)}
        try:
            async with self._session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as response:
                body = await self._body(url, response)
                links = response.links.get("next")
                following = None if links is None else str(links["url"])
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _PassingError(str(error) or type(error).__name__) from error
        if response.status == 204 or (response.status == 200 and not body):
            return Answer(url, None, following)
        if response.status in _PASSING or response.status >= 500:
            raise _PassingError(f"status {response.status}", _retry_after_s(response.headers.get("Retry-After")))
        if response.status != 200:
            where = response.headers.get("Location")
            remedy = (
                "check headers.file"
                if response.status in (401, 403)
                else f"change url to {where}"
                if where
                else "check url"
            )
            raise ConnectError(f"GET {url} returned status {response.status}; {remedy}. {body[:200]!r}")
        try:
            return Answer(url, loads_exact(body), following)
        except DataError as error:
            raise ConnectError(f"the response to GET {url} is not JSON: {error}. {body[:200]!r}") from None

    async def _body(self, url: str, response: aiohttp.ClientResponse) -> bytes:
        limit, body = self._settings["max.body.bytes"], bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise ConnectError(
                    f"the response to GET {url} is larger than {limit} bytes: ask for smaller pages, or raise "
                    "max.body.bytes"
                )
        return bytes(body)

    def _headers(self) -> dict[str, str]:
        path = self._settings["headers.file"]
        if not path:
            return {}
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConnectError(f"headers.file {path} cannot be read: {error}") from error
        headers = {}
        for number, line in enumerate(lines, 1):
            name, colon, value = line.partition(":")
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not colon or not name.strip():
                raise ConnectError(f"line {number} of headers.file {path} is not a header: write `Name: value`")
            headers[name.strip()] = value.strip()
        return headers


def _retry_after_s(text: str | None) -> float | None:
    """Return the wait in seconds from the header Retry-After, a number or a date (RFC 9110).

    Return None if there is no header, or if its value is unreadable.
    """
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):  # the parser of emails does not check all its input
        return None
    if at.tzinfo is None:  # the zone -0000 means UTC (RFC 5322)
        at = at.replace(tzinfo=datetime.UTC)
    return max(0.0, (at - datetime.datetime.now(datetime.UTC)).total_seconds())
