"""`Admin`: the blocking admin client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from ..client.admin import Admin as AsyncAdmin
from ..client.keywords import AdminKeywords
from .facade import Facade, blocking


class Admin(Facade[AsyncAdmin]):
    """Manages topics, groups, users, access rules, transactions and so on; `oncelog.Admin` with blocking methods."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[AdminKeywords]) -> None:
        super().__init__(AsyncAdmin(config, **settings))

    def start(self) -> None:
        """Connect to the cluster. Raises KafkaTimeoutError if no broker responds within default.api.timeout.ms."""
        self._start(self._client.start)

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._close(self._client.close)

    create_topics = blocking(AsyncAdmin.create_topics)
    create_topic = blocking(AsyncAdmin.create_topic)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    delete_records = blocking(AsyncAdmin.delete_records)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    list_offsets_or_errors = blocking(AsyncAdmin.list_offsets_or_errors)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    group_offsets = blocking(AsyncAdmin.group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    group_claims = blocking(AsyncAdmin.group_claims)
    unfence_group = blocking(AsyncAdmin.unfence_group)
    create_acls = blocking(AsyncAdmin.create_acls)
    list_acls = blocking(AsyncAdmin.list_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    set_password = blocking(AsyncAdmin.set_password)
    delete_password = blocking(AsyncAdmin.delete_password)
    scram_users = blocking(AsyncAdmin.scram_users)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = blocking(AsyncAdmin.describe_delegation_tokens)
    set_quotas = blocking(AsyncAdmin.set_quotas)
    list_quotas = blocking(AsyncAdmin.list_quotas)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    find_hanging_transactions = blocking(AsyncAdmin.find_hanging_transactions)
