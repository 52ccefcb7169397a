"""Define the settings of quotas, with Kafka's names."""

from __future__ import annotations

from ...settings import Table, at_least, integer


class QuotaSettings(Table):
    """The settings that decide how the use of quotas is measured. The quotas themselves are metadata (KIP-546)."""

    quota_window_num: int = integer(
        11,
        at_least(2),
        doc="The number of windows over which the use of a quota is measured. A client that was idle may"
        " immediately use the quota of all windows but one.",
    )
    quota_window_size_seconds: int = integer(
        1, at_least(1), doc="The length in seconds of a window over which the use of a quota is measured."
    )
    controller_quota_window_num: int = integer(
        11,
        at_least(1),
        doc="The number of windows for which an idle client saves up its quota `controller_mutation_rate`. It may"
        " then use all of this at once.",
    )
    controller_quota_window_size_seconds: int = integer(
        1, at_least(1), doc="The length in seconds of each window that controller.quota.window.num counts."
    )
    max_client_quotas: int = integer(
        10000,
        at_least(0),
        doc="The maximum number of users, client ids, pairs of user and client id, and addresses that have quotas, all"
        " counted together. A request that sets a quota for a further one fails with POLICY_VIOLATION.",
    )
