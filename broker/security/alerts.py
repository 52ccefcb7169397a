"""Tell a peer why its TLS handshake has failed: send the alert that the TLS library has prepared (RFC 8446, section 6).

After a failure, asyncio and uvloop close the connection without sending the alert. But before they wait for more bytes
of a handshake, they send what is ready. An `AlertingObject` therefore reports a failure as a need for more bytes, and
calls the function in `failed` with the error. That function ends the handshake. The alert shows clients at once that
another attempt is useless.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

failed: ContextVar[Callable[[ssl.SSLError], None]] = ContextVar("failed")
"""The function to call with the error when a handshake that began in this context fails."""


class AlertingObject(ssl.SSLObject):
    """A TLS connection that sends its alert before it reports a failure. Set it as `SSLContext.sslobject_class`."""

    _tell: Callable[[ssl.SSLError], None] | None = None

    @classmethod
    def _create(cls, *arguments: Any, **keywords: Any) -> AlertingObject:
        made: AlertingObject = super()._create(*arguments, **keywords)  # type: ignore[misc]
        made._tell = failed.get(None)
        return made

    def do_handshake(self) -> None:
        """Continue the handshake. Raises ssl.SSLWantReadError until it has ended.

        If it fails, the function in `failed` gets the error, and SSLWantReadError is raised instead of it: asyncio then
        sends the alert. Without such a function, the error is raised.
        """
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self._tell is None:
                raise
            self._tell(error)
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the alert is sent first") from error
