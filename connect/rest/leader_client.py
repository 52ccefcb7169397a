"""`LeaderClient`: sends internal requests to the leader, signed with the group's session key (KIP-507)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote, urljoin

from ..errors import LeaderRequestError
from ..signatures import signed
from ..stores.config_records import SessionKey
from .client import RestClient


class LeaderClient:
    """Sends one worker's internal requests through `client`. `algorithm` is inter.worker.signature.algorithm."""

    def __init__(self, client: RestClient, session_key: Callable[[], SessionKey | None], algorithm: str) -> None:
        self._client, self._session_key, self._algorithm = client, session_key, algorithm

    async def fence(self, leader_url: str, connector: str) -> None:
        """Ask the leader to fence the producers of a connector's earlier tasks. Raises LeaderRequestError."""
        await self._send("PUT", _url(leader_url, connector, "fence"), b"")

    async def put_task_configs(self, leader_url: str, connector: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Ask the leader to write the settings of a connector's tasks. Raises LeaderRequestError."""
        body = json.dumps([dict(config) for config in configs]).encode()
        await self._send("POST", _url(leader_url, connector, "tasks"), body)

    async def _send(self, method: str, url: str, body: bytes) -> None:
        key = self._session_key()
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers |= signed(key.key, body, self._algorithm)
        try:
            response = await self._client.send(method, url, body, headers)
        except OSError as error:
            raise LeaderRequestError(f"{method} {url} failed: {error!r}", None) from error
        if response.status >= 400:
            text = response.body.decode(errors="replace")
            raise LeaderRequestError(
                f"the leader answered {response.status} to {method} {url}: {_message(text)}", response.status
            )


def _url(leader: str, connector: str, internal: str) -> str:
    return urljoin(leader, f"/connectors/{quote(connector, safe='')}/{internal}")


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return text[:200]
