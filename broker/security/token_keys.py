"""The keys with which tokens are verified: a JSON Web Key Set from a file or an HTTP server (RFC 7517).

The set is fetched at the start and every `sasl.oauthbearer.jwks.endpoint.refresh.ms`. If a token names a key that the
set does not have, the set is fetched again at once, but at most once every `RETRY_S` seconds. No login waits longer
than `FETCH_S` for a fetch, and tokens of known keys never wait.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    url2pathname,
)

from ..system.ports import Lane, Threads

if TYPE_CHECKING:
    from jwt import PyJWK

FETCH_S: Final = 10.0
"""The maximum time in seconds for receiving the body, and also for receiving each part of the headers.

A fetch that has not ended after twice this time has failed.
"""

RETRY_S: Final = 5.0
"""The minimum time in seconds between two fetches that are caused by unknown keys."""

MAX_BYTES: Final = 1_000_000
"""The largest key set that is read, in bytes."""

MAX_KEYS: Final = 1000
"""The maximum number of keys of a set that are used."""

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""The algorithms of signatures. All of them use key pairs, so nobody can sign a token with a published key."""


class KeysError(Exception):
    """The error raised if a key set cannot be fetched or read; the message states the reason."""


class TokenKeys:
    """The key set at one address. Call `start` before use, and `stop` at the end."""

    def __init__(self, url: str, refresh_s: float, threads: Threads, log: Any) -> None:
        """`url` begins with file:, http: or https:."""
        self._url, self._refresh_s = url, refresh_s
        self._threads, self._log = threads, log
        self._keys: Mapping[str | None, PyJWK] = {}
        self._fetching: asyncio.Future[Mapping[str | None, PyJWK]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._last = -RETRY_S

    async def start(self) -> None:
        """Fetch the keys for the first time. Raises KeysError."""
        self._keys = await self._fetch()
        self._schedule()

    def stop(self) -> None:
        """Stop fetching the keys."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def key(self, key_id: str | None) -> PyJWK | None:
        """Return the key with this id; for None, the only key of the set. Return None if there is no such key."""
        if (known := self._known(key_id)) is not None:
            return known
        now = asyncio.get_running_loop().time()
        if self._fetching is None and now - self._last < RETRY_S:
            return None
        try:
            async with asyncio.timeout(FETCH_S):
                await asyncio.shield(self._refreshed())
        except (KeysError, TimeoutError):
            pass  # logged already
        return self._known(key_id)

    def _known(self, key_id: str | None) -> PyJWK | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _schedule(self) -> None:
        if not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(self._refresh_s, self._refresh)

    def _refresh(self) -> None:
        self._refreshed().add_done_callback(lambda _: self._schedule())

    def _refreshed(self) -> asyncio.Future[Mapping[str | None, PyJWK]]:
        """Fetch the keys, or join the fetch that is under way."""
        if self._fetching is None:
            fetching = self._fetching = asyncio.ensure_future(self._fetch())
            fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, fetching: asyncio.Future[Mapping[str | None, PyJWK]]) -> None:
        self._fetching = None
        if fetching.cancelled():
            return
        if (error := fetching.exception()) is not None:
            self._log.error("token_keys_not_fetched", url=self._url, why=str(error), remedy="the former keys are used")
        else:
            self._keys = fetching.result()

    async def _fetch(self) -> Mapping[str | None, PyJWK]:
        self._last = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(2 * FETCH_S):  # a server may send its headers one byte at a time
                return await self._threads.run(Lane.OUTSIDE, lambda: parse_keys(fetch_url(self._url)))
        except TimeoutError:
            raise KeysError(f"{self._url} cannot be read: no response within {2 * FETCH_S:g} s") from None


def fetch_url(url: str) -> bytes:
    """Read a file: address, or an http(s): address within the limits of `FETCH_S`. Blocks. Raises KeysError."""
    try:
        if urlsplit(url).scheme == "file":
            with Path(url2pathname(urlsplit(url).path)).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        else:
            content = _fetch_http(url)
    except (OSError, HTTPException, ValueError) as error:
        raise KeysError(f"{url} cannot be read: {error}") from error
    if len(content) > MAX_BYTES:
        raise KeysError(f"{url} has more than {MAX_BYTES:,} bytes")
    return content


def _fetch_http(url: str) -> bytes:
    """Read an http(s): address. Redirects are errors, because they could lead to other kinds of addresses."""
    opener = OpenerDirector()
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    deadline = time.monotonic() + FETCH_S
    content = bytearray()
    with opener.open(url, timeout=FETCH_S) as response:
        while len(content) <= MAX_BYTES and (part := response.read1(65536)):
            content += part
            if time.monotonic() > deadline:
                raise TimeoutError(f"no complete response within {FETCH_S:g} s")
    return bytes(content)


def parse_keys(content: bytes) -> Mapping[str | None, PyJWK]:
    """Return the public keys for signatures in a key set, by their ids. Raises KeysError.

    Secret keys, keys for other uses and keys of unknown types are skipped.
    """
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        rows = json.loads(content)["keys"]
        rows = [row for row in rows if row.get("kty") != "oct" and row.get("use", "sig") == "sig"][:MAX_KEYS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeysError("the address contains no JSON Web Key Set (an object with a list `keys`)") from error
    keys: dict[str | None, PyJWK] = {}
    for row in rows:
        try:
            keys[row.get("kid")] = PyJWK(row)
        except (PyJWTError, ValueError, TypeError):
            continue  # the key has a type that this broker does not know
    if not keys:
        raise KeysError("the key set has no public key for signatures")
    return keys
