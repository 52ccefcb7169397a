"""Define the settings of delegation tokens (KIP-48), with Kafka's names and defaults."""

from __future__ import annotations

from ...settings import INT32_MAX, Table, at_least, integer, long, password


class DelegationTokenSettings(Table):
    """The settings of delegation tokens. A token lets other processes log in as a user without the user's password."""

    delegation_token_secret_key: str = password(
        doc="The key from which the broker computes the secret of every delegation token. Empty: delegation tokens are"
        " off. Use a long random string, for example the output of `openssl rand -base64 48`. Changing the key"
        " invalidates all secrets that were handed out."
    )
    delegation_token_max_lifetime_ms: int = long(
        7 * 86_400_000,
        at_least(1),
        doc="The longest time in ms for which a delegation token can be valid, counted from its creation and including"
        " all renewals.",
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000,
        at_least(1),
        doc="The time in ms for which a new delegation token is valid, and the longest time that a renewal adds to the"
        " current time.",
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000,
        at_least(1),
        doc="The time in ms between two searches for expired delegation tokens, which are then removed. An expired"
        " token admits no login even before it is removed.",
    )
    delegation_token_max_tokens: int = integer(
        10_000,
        at_least(0),
        doc="The maximum number of delegation tokens, which are all kept in memory. A request to create more fails with"
        " POLICY_VIOLATION. Not a setting of Kafka.",
    )
    delegation_token_max_tokens_per_owner: int = integer(
        INT32_MAX,
        at_least(0),
        doc="The maximum number of delegation tokens of one owner. A request to create more fails with"
        " POLICY_VIOLATION. The default is no limit, as in Kafka, so one owner can use up delegation.token.max.tokens."
        " Not a setting of Kafka.",
    )
