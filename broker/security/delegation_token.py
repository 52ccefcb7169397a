"""Define delegation tokens (KIP-48), what clients may do with them, and when they expire. All functions are pure.

Kafka's rules: the owner, the requester and the renewers of a token may see it; only the owner and the renewers may
renew it or let it expire. A `DelegationToken` does not contain the token's secret. Times are in ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...auth.principal import Principal
from ...settings import INT64_MAX


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with which a client logs in as `owner`.

    `requester` is the client that created the token. To create a token for another owner, a client needs a permission
    (KIP-373). The token is valid until `expiry_timestamp`, and cannot be renewed beyond `max_timestamp`.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the token is no longer valid."""
        return self.expiry_timestamp < now_ms

    def may_renew(self, principal: Principal) -> bool:
        """Return whether a client may renew the token or let it expire."""
        return principal == self.owner or principal in self.renewers

    def concerns_any(self, principals: Collection[Principal]) -> bool:
        """Return whether one of the principals is the owner, the requester or a renewer, and so may see the token."""
        return any(principal in principals for principal in (self.owner, self.requester, *self.renewers))

    def expiring_at(self, timestamp: int) -> DelegationToken:
        """Return the token with the expiry `timestamp`, or `max_timestamp` if that is earlier."""
        return replace(self, expiry_timestamp=min(timestamp, self.max_timestamp))


def issued(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: tuple[Principal, ...],
    now_ms: int,
    *,
    max_lifetime_ms: int,
    expiry_time_ms: int,
) -> DelegationToken:
    """Return a new token that expires after `expiry_time_ms` and can be renewed until it is `max_lifetime_ms` old."""
    last = min(now_ms + max_lifetime_ms, INT64_MAX)
    return DelegationToken(token_id, owner, requester, renewers, now_ms, min(now_ms + expiry_time_ms, last), last)


def shorter(limit_ms: int, asked_ms: int) -> int:
    """Return the requested period in ms, limited to `limit_ms`. A period that is not positive means `limit_ms`."""
    return min(limit_ms, asked_ms) if asked_ms > 0 else limit_ms
