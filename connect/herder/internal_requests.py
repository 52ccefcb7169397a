"""`InternalRequests`: handles the requests of other workers in the group, signed with the session key (KIP-507)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

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
        """Write the settings of a connector's tasks; raises the errors of `check_signature` and of the write."""
        configs = _task_configs(body)
        self._check(body, signature, algorithm)
        if configs is None:
            raise ConnectError("the settings of tasks are null: send a JSON list of objects")
        await self._group.requests.run(partial(self._group.task_configs.write, connector, configs))

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


def _task_configs(body: bytes) -> list[dict[str, str]] | None:
    """Parse the task settings in a request, None for null; raises ConnectError."""
    try:
        configs = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConnectError(f"the settings of tasks are not JSON: {error}") from None
    if configs is None:
        return None
    if not isinstance(configs, list) or not all(isinstance(each, dict) for each in configs):
        raise ConnectError("the settings of tasks must be a JSON list of objects")
    for config in configs:
        for name, value in config.items():
            if not isinstance(value, str):
                raise ConnectError(f"the setting {name!r} of a task must be text, not {type(value).__name__}")
    return configs
