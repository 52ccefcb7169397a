"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) with the credentials of the cluster's metadata (KIP-84).

A client with the extension `tokenauth=true` logs in with a delegation token (KIP-48): the user name is the token's id,
and the password is the token's secret in base64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...auth.principal import Principal
from ...auth.scram import TOKEN_EXTENSION, ScramError, ScramServer, ScramUser
from ...auth.scram_credentials import NO_CREDENTIALS, ScramCredential, ScramDecoys, ScramMechanism
from .login import LoginRefused, Proof


class ScramUsers(Protocol):
    """The part of the cluster's metadata that logins use: the SCRAM credentials."""

    def scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential for a SCRAM mechanism, or None."""

    def scram_iterations(self, mechanism: str) -> Mapping[int, int]:
        """Return the number of credentials of a SCRAM mechanism for each iteration count."""


class TokenLogins(Protocol):
    """The part of the delegation token manager that logins use."""

    async def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the credential of a token; None for a token that does not exist or has expired."""

    def proof(self, token_id: str) -> Proof | None:
        """Return what the token proves; None for a token that does not exist or has expired."""


class ScramExchange:
    """The broker's side of one exchange of two messages in each direction.

    `tokens` is None if delegation tokens are off.
    """

    def __init__(
        self, mechanism: ScramMechanism, users: ScramUsers, decoys: ScramDecoys, tokens: TokenLogins | None = None
    ) -> None:
        self.proof: Proof | None = None
        self._mechanism, self._users, self._decoys, self._tokens = mechanism, users, decoys, tokens
        self._server = ScramServer(mechanism)
        self._user: ScramUser | None = None

    async def answer(self, message: bytes) -> bytes:
        """Take the client's next message and return the broker's. Raises LoginRefused.

        An unknown user or token gets a challenge like any other, so that a client cannot find out which names exist.
        """
        try:
            if self._user is None:
                self._user = user = self._server.receive(message)
                return self._server.challenge(await self._credential(user) or self._decoy(user))
            last = self._server.finish(message)
            self.proof = self._proof(self._user)
        except ScramError as error:
            whose = "" if self._user is None else f" ({self._kind(self._user)} {self._user.name!r})"
            raise LoginRefused(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism.name}",
                f"{error}{whose}",
            ) from error
        return last

    async def _credential(self, user: ScramUser) -> ScramCredential | None:
        if not user.has_token:
            return self._users.scram_credential(user.name, self._mechanism.name)
        return None if self._tokens is None else await self._tokens.credential(user.name, self._mechanism)

    def _decoy(self, user: ScramUser) -> ScramCredential:
        of_others = NO_CREDENTIALS if user.has_token else self._users.scram_iterations(self._mechanism.name)
        return self._decoys.credential(self._mechanism, user.name, of_others)

    def _proof(self, user: ScramUser) -> Proof:
        if not user.has_token:
            return Proof(Principal("User", user.name))
        proof = None if self._tokens is None else self._tokens.proof(user.name)
        if proof is None:
            raise ScramError("the delegation token expired during the login")
        return proof

    def _kind(self, user: ScramUser) -> str:
        """Return words that say whether the client has sent the name of a user or the id of a token.

        This is for the broker's log only: a response must not reveal which tokens exist.
        """
        if user.has_token:
            return "delegation token"
        if self._tokens is not None and self._tokens.proof(user.name) is not None:
            return (
                f"a delegation token, used without {TOKEN_EXTENSION}=true, which Java's clients set in the JAAS line:"
            )
        return "user"
