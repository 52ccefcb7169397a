"""`InternalRequests`: handles the requests of other workers in the group, signed with the session key (KIP-507)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..errors import ConnectError
from ..signatures import check_signature
from ..stores.config_store import ConfigStore
from .group_worker import GroupWorker


class InternalRequests:
    """Handles the internal requests to one worker. `algorithms` is inter.worker.verification.algorithms.

    With `always_signed`, a request needs a signature even if the group has agreed on a protocol without signatures.
    """

    def __init__(
        self, group: GroupWorker, configs: ConfigStore, algorithms: Sequence[str], *, always_signed: bool
    ) -> None:
        self._group, self._configs, self._algorithms = group, configs, algorithms
        self._always_signed = always_signed

    async def put_task_configs(self, connector: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Write the settings of a connector's tasks. Raises the errors of `check_signature` and of the write.

        As in Kafka Connect, a body that is not a JSON list of plain settings raises ConnectError even without a
        signature.
        """
        configs = _task_configs(body)
        self._check(body, signature, algorithm)
        await self._group.requests.run(partial(self._group.task_configs.write, connector, _without_null(configs)))

    async def fence(self, connector: str, body: bytes, signature: str | None, algorithm: str | None) -> None:
        """Fence the producers of a connector's earlier tasks.

        Raises the errors of `check_signature` and of the fencing.
        """
        self._check(body, signature, algorithm)
        await self._group.fencing.fence(connector)

    def _check(self, body: bytes, signature: str | None, algorithm: str | None) -> None:
        if self._always_signed or self._group.leadership.signs_requests:
            key = self._configs.session_key
            check_signature(None if key is None else key.key, body, signature, algorithm, self._algorithms)


_TaskConfigs = list[dict[str, str | None] | None] | None
"""Task settings in a request. Any part of them may be null."""


def _task_configs(body: bytes) -> _TaskConfigs:
    """Parse the task settings in a request; numbers and booleans become text. Raises ConnectError."""
    try:
        configs = json.loads(body, parse_int=str, parse_float=str, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise ConnectError(f"the settings of tasks are not JSON: {error}") from None
    if configs is None:
        return None
    if not isinstance(configs, list) or not all(each is None or isinstance(each, dict) for each in configs):
        raise ConnectError("the settings of tasks must be a JSON list of objects")
    return [each and {name: _text(name, value) for name, value in each.items()} for each in configs]


def _text(name: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if value is not None and not isinstance(value, str):
        raise ConnectError(f"the setting {name!r} of a task must be text, not {type(value).__name__}")
    return value


def _not_json(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _without_null(configs: _TaskConfigs) -> list[dict[str, str]]:
    """Return the settings. Raises ConnectError if a part of them is null."""
    if configs is None:
        raise ConnectError("the settings of tasks are null: send a JSON list of objects")
    complete = []
    for config in configs:
        if config is None:
            raise ConnectError("the settings of a task are null: send an object")
        complete.append({name: value for name, value in config.items() if value is not None})
        missing = config.keys() - complete[-1].keys()
        if missing:
            raise ConnectError(f"the setting {min(missing)!r} of a task is null: leave it out, or send text")
    return complete
