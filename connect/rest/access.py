"""`RestAccess`: decides which requests to a worker's REST interface are admitted."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Final

from ...auth.http_access import HttpAccess, NamedFile
from ..errors import ConfigValueError
from ..settings.worker import WorkerConfig
from .errors import error_answer
from .messages import Response

log = logging.getLogger(__name__)

_USERS: Final = "rest.users.location"
_TOKENS: Final = "rest.bearer.token.location"

_INTERNAL: Final = re.compile(r"POST /connectors/[^/?;#]+/tasks/?|PUT /connectors/[^/?;#]+/fence/?")
"""Requests between workers, signed with the group's session key (KIP-507). Their handlers check the signature."""

_HEALTH: Final = re.compile(r"(GET|HEAD) /health/?")


class RestAccess:
    """Admits requests with a password from `rest.users.location` or with a token from `rest.bearer.token.location`.

    Signed requests of other workers need neither, as in Kafka Connect. A forwarded request contains its user's
    credentials, which every worker can check.
    """

    def __init__(self, config: WorkerConfig, *, internal: bool) -> None:
        """Read the users and tokens. `internal` says whether other workers send requests. Raises ConfigValueError."""
        self._health_public = config["rest.health.public"]
        self._internal = internal
        loop = asyncio.get_running_loop()
        self._access = HttpAccess.of_files(
            NamedFile(_USERS, config[_USERS]),
            NamedFile(_TOKENS, config[_TOKENS]),
            lambda check: loop.run_in_executor(None, check),
            lambda setting, problem: ConfigValueError(setting, config[setting], problem),
        )
        self._files_usable = True

    async def refusal(self, method: str, target: str, headers: Mapping[str, str]) -> Response | None:
        """Return the response to a request that is not admitted, or None if the request is admitted."""
        request = f"{method} {target.partition('?')[0]}"
        if self._internal and _INTERNAL.fullmatch(request):
            return None
        if self._health_public and _HEALTH.fullmatch(request):
            return None
        authorization = headers.get("authorization")
        try:
            if await self._access.admits(authorization):
                self._files_usable = True
                return None
        except (OSError, ValueError) as error:
            if self._files_usable:
                log.error("the REST interface cannot check credentials until this is corrected: %s", error)
            self._files_usable = False
            return error_answer(503, "The credentials cannot be checked; see the worker's log.")
        if authorization is not None:
            log.info("the REST interface has refused the credentials of a %s request", method)
        challenge = {"WWW-Authenticate": self._access.challenge}
        return error_answer(401, "User cannot access the resource.", challenge)
