"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) with the credentials of the cluster's metadata (KIP-84)."""

from __future__ import annotations

from collections.abc import Callable

from ...auth.principal import Principal
from ...auth.scram import ScramCredential, ScramDecoys, ScramError, ScramMechanism, ScramServer
from .login import LoginRefused, Proof

FindCredential = Callable[[str, str], ScramCredential | None]
"""A function of (user, mechanism) that returns the stored credential."""


class ScramExchange:
    """The broker's side of one exchange of two messages in each direction."""

    def __init__(self, mechanism: ScramMechanism, find: FindCredential, decoys: ScramDecoys) -> None:
        self.proof: Proof | None = None
        self._mechanism, self._find, self._decoys = mechanism, find, decoys
        self._server = ScramServer(mechanism)
        self._user: str | None = None

    async def answer(self, message: bytes) -> bytes:
        """Take the client's next message and return the broker's. Raises LoginRefused.

        An unknown user gets a challenge like any other, so that names cannot be tried.
        """
        try:
            if self._user is None:
                user = self._server.receive(message)
                self._user = user.name
                # No user has a delegation token, because the broker issues none.
                known = None if user.has_token else self._find(user.name, self._mechanism.name)
                return self._server.challenge(known or self._decoys.credential(self._mechanism, user.name))
            last = self._server.finish(message)
        except ScramError as error:
            whose = "" if self._user is None else f" (user {self._user!r})"
            raise LoginRefused(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism.name}",
                f"{error}{whose}",
            ) from error
        self.proof = Proof(Principal("User", self._user))
        return last
