"""`LeaderClient`: sends internal requests to the leader, signed with the group's session key (KIP-507)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import aiohttp
from yarl import URL

from ..errors import LeaderRequestError
from ..signatures import signed
from ..stores.config_records import SessionKey
from .errors import REQUEST_TIMEOUT_S


class LeaderClient:
    """Sends one worker's internal requests. `algorithm` is inter.worker.signature.algorithm."""

    def __init__(self, session_key: Callable[[], SessionKey | None], algorithm: str) -> None:
        self._session_key, self._algorithm = session_key, algorithm
        self._session: aiohttp.ClientSession | None = None

    async def fence(self, leader_url: str, connector: str) -> None:
        """Ask the leader to fence the producers of a connector's earlier tasks; raises LeaderRequestError."""
        await self._send("PUT", URL(leader_url) / "connectors" / connector / "fence", b"")

    async def put_task_configs(self, leader_url: str, connector: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Ask the leader to write the settings of a connector's tasks; raises LeaderRequestError."""
        body = json.dumps([dict(config) for config in configs]).encode()
        await self._send("POST", URL(leader_url) / "connectors" / connector / "tasks", body)

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, method: str, url: URL, body: bytes) -> None:
        key = self._session_key()
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers |= signed(key.key, body, self._algorithm)
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S))
        try:
            async with self._session.request(method, url, data=body, headers=headers) as answer:
                text = await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LeaderRequestError(f"{method} {url} failed: {error!r}", None) from error
        if answer.status >= 400:
            raise LeaderRequestError(
                f"the leader answered {answer.status} to {method} {url.path}: {_message(text)}", answer.status
            )


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return text[:200]
