"""Create, renew and expire delegation tokens (KIP-48), verify them in logins, and remove the expired ones.

The metadata stores each token without its secret. The secret is an HMAC-SHA512 of the token's id with the setting
`delegation.token.secret.key`, as in Kafka, and it exists only in memory and in responses. A change becomes visible when
it is durable. Permissions are not checked here; the handlers check them.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...auth.principal import Principal
from ...protocol.errors import ErrorCode, KafkaError
from ..config import BrokerConfig
from ..security.delegation_token import DelegationToken, issued, shorter
from ..security.login import Proof
from ..system.ports import Clock, Lane, RandomIds, Threads
from ..system.settled_clock import SettledClock
from .metadata import Metadata

if TYPE_CHECKING:
    from ...auth.scram_credentials import ScramCredential, ScramMechanism

EXAMINED_AT_ONCE: Final = 200
"""The largest number of tokens that are examined, and removed if they have expired, in one turn of the event loop."""

_HMAC_BYTES: Final = 64
"""The length of a token's secret. A longer secret is not looked up, because hashing it could take a long time."""

NEXT_PORTION_S: Final = 0.1
"""The pause in seconds before the search examines the next tokens."""


class DelegationTokenManager:
    """The delegation tokens of a broker that has a secret key. `start` begins to remove expired tokens."""

    def __init__(
        self, config: BrokerConfig, metadata: Metadata, clock: Clock, ids: RandomIds, threads: Threads, logger: Any
    ) -> None:
        self._config = config
        self._key = config.delegation_token_secret_key.encode()
        self._metadata, self._clock, self._ids, self._threads, self._logger = metadata, clock, ids, threads, logger
        purpose = "the removal of expired delegation tokens"
        self._settled_clock = SettledClock(clock, config.expiry_clock_settle_ms, logger, purpose)
        self._token_ids: dict[bytes, str] = {}  # by HMAC
        self._credentials: dict[str, dict[str, asyncio.Future[ScramCredential]]] = {}  # by token id and mechanism
        self._owners: dict[str, Principal] = {}  # by token id, including tokens that are being stored
        self._owned: Counter[Principal] = Counter()
        self._unexamined: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Load the tokens from the metadata, and begin to remove expired tokens. The metadata must already be loaded.

        The time between two searches is `delegation.token.expiry.check.interval.ms`.
        """
        for token_id, token in self._metadata.delegation_tokens.items():
            self._token_ids[self.hmac(token_id)] = token_id
            self._count(token)
        self._metadata.on_delegation_token_changed.append(self._changed)
        self._schedule()

    def stop(self) -> None:
        """Stop searching for expired tokens."""
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self, token_id: str) -> None:
        token = self._metadata.delegation_tokens.get(token_id)
        if token is not None:
            self._token_ids[self.hmac(token_id)] = token_id
            self._count(token)
        else:
            self._token_ids.pop(self.hmac(token_id), None)
            self._credentials.pop(token_id, None)
            self._discount(token_id)

    def _count(self, token: DelegationToken) -> None:
        """Count a token towards its owner's limit, unless it has been counted already."""
        if token.token_id not in self._owners:
            self._owners[token.token_id] = token.owner
            self._owned[token.owner] += 1

    def _discount(self, token_id: str) -> None:
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]

    def hmac(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    # ---- changes

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """Create a token; return it when it is durable.

        A `max_lifetime_ms` that is not positive means `delegation.token.max.lifetime.ms`, which is also the limit.
        Raises KafkaError POLICY_VIOLATION if there are `delegation.token.max.tokens` tokens already, or if the owner
        has `delegation.token.max.tokens.per.owner` tokens already. Raises KafkaError KAFKA_STORAGE_ERROR if the token
        cannot be stored.
        """
        config = self._config
        if self._metadata.delegation_token_count >= config.delegation_token_max_tokens:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster already has {config.delegation_token_max_tokens} tokens, the limit set by"
                " delegation.token.max.tokens. Expire tokens, or raise the setting.",
            )
        if self._owned[owner] >= config.delegation_token_max_tokens_per_owner:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{owner} already has {config.delegation_token_max_tokens_per_owner} tokens, the limit set by"
                " delegation.token.max.tokens.per.owner. Expire tokens, or raise the setting.",
            )
        token = issued(
            self._ids.uuid().hex(),
            owner,
            requester,
            tuple(dict.fromkeys(renewers)),
            self._clock.now_ms(),
            max_lifetime_ms=shorter(config.delegation_token_max_lifetime_ms, max_lifetime_ms),
            expiry_time_ms=config.delegation_token_expiry_time_ms,
        )
        self._count(token)
        try:
            await self._metadata.change_delegation_tokens({token.token_id: token})
        except KafkaError:
            self._discount(token.token_id)
            raise
        self._log("delegation_token_created", token, requester)
        return token

    async def renew(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        """Renew the token for a period; a period that is not positive means `delegation.token.expiry.time.ms`.

        Return the new expiry when it is durable. Raises KafkaError DELEGATION_TOKEN_NOT_FOUND,
        DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH and KAFKA_STORAGE_ERROR.
        """
        token, now_ms = self._of_secret(secret), self._clock.now_ms()
        self._check_valid(token, now_ms)
        self._check_may_renew(token, principal)
        renewed = token.expiring_at(now_ms + shorter(self._config.delegation_token_expiry_time_ms, period_ms))
        await self._metadata.change_delegation_tokens({token.token_id: renewed})
        self._log("delegation_token_renewed", renewed, principal)
        return renewed.expiry_timestamp

    async def expire(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        """Let the token expire after a period; a negative period removes the token immediately, even if it has expired.

        Return the new expiry when it is durable. Raises KafkaError as `renew` does.
        """
        token, now_ms = self._of_secret(secret), self._clock.now_ms()
        self._check_may_renew(token, principal)
        if period_ms < 0:
            await self._metadata.change_delegation_tokens({token.token_id: None})
            self._log("delegation_token_removed", token, principal)
            return now_ms
        self._check_valid(token, now_ms)
        changed = token.expiring_at(now_ms + period_ms)
        await self._metadata.change_delegation_tokens({token.token_id: changed})
        self._log("delegation_token_expiry_changed", changed, principal)
        return changed.expiry_timestamp

    def _of_secret(self, secret: bytes) -> DelegationToken:
        token_id = self._token_ids.get(secret) if len(secret) <= _HMAC_BYTES else None
        # A token whose removal is being written must not be stored again.
        token = None if token_id is None else self._metadata.newest_delegation_token(token_id)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    @staticmethod
    def _check_valid(token: DelegationToken, now_ms: int) -> None:
        if token.is_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    @staticmethod
    def _check_may_renew(token: DelegationToken, principal: Principal) -> None:
        if not token.may_renew(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)

    def _log(self, event: str, token: DelegationToken, principal: Principal) -> None:
        self._logger.info(
            event,
            token_id=token.token_id,
            owner=str(token.owner),
            principal=str(principal),
            expiry_timestamp=token.expiry_timestamp,
        )

    # ---- logins

    async def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the SCRAM credential of a token; None for a token that does not exist or has expired.

        The first call for a token and a mechanism computes the credential in a thread, which takes milliseconds.
        """
        from ...auth.scram_credentials import ScramCredential

        if self._valid(token_id) is None:
            return None
        known = self._credentials.setdefault(token_id, {})
        computing = known.get(mechanism.name)
        if computing is None:
            password = base64.b64encode(self.hmac(token_id)).decode()
            computing = self._threads.run(Lane.LOGIN, lambda: ScramCredential.of_password(mechanism, password))
            known[mechanism.name] = computing
        return await asyncio.shield(computing)

    def proof(self, token_id: str) -> Proof | None:
        """Return the identity that a token proves until its expiry; None if the token does not exist or has expired."""
        token = self._valid(token_id)
        if token is None:
            return None
        return Proof(token.owner, token.expiry_timestamp - self._clock.now_ms(), token_id=token_id)

    def _valid(self, token_id: str) -> DelegationToken | None:
        token = self._metadata.delegation_tokens.get(token_id)
        return None if token is None or token.is_expired(self._clock.now_ms()) else token

    # ---- removal of expired tokens

    def _schedule(self) -> None:
        delay_s = self._config.delegation_token_expiry_check_interval_ms / 1000
        if self._unexamined:
            delay_s = min(delay_s, NEXT_PORTION_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._remove_expired)

    def _remove_expired(self) -> None:
        if not self._unexamined:
            self._unexamined = list(self._metadata.delegation_tokens)
        portion, self._unexamined = self._unexamined[:EXAMINED_AT_ONCE], self._unexamined[EXAMINED_AT_ONCE:]
        now_ms = self._settled_clock.now_ms()
        tokens = map(self._metadata.newest_delegation_token, portion)
        expired = [token.token_id for token in tokens if token is not None and token.is_expired(now_ms)]
        if expired:
            try:
                self._metadata.change_delegation_tokens(dict.fromkeys(expired))
            except KafkaError as error:  # the next search tries again
                self._logger.warning("delegation_tokens_not_removed", tokens=len(expired), error=str(error))
            else:
                self._logger.info("delegation_tokens_expired", tokens=len(expired))
        self._schedule()
