"""The admin client: topics, configs, groups and their offsets, users, access rules, tokens, transactions."""

from .access import Acl, AclFilter, ScramUser
from .admin import Admin
from .claims import GroupClaim
from .delegation_tokens import DelegationToken
from .quotas import Quota
from .transaction_values import (
    AbortTransactionSpec,
    FencedProducer,
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
    WhyHanging,
)
from .values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    GroupMember,
    NewTopic,
    ResourceType,
)

__all__ = [
    "AbortTransactionSpec",
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "DelegationToken",
    "FencedProducer",
    "GroupClaim",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "NewTopic",
    "ProducerDescription",
    "Quota",
    "ResourceType",
    "ScramUser",
    "TransactionDescription",
    "TransactionListing",
    "WhyHanging",
]
