"""The admin client: topics, configs, groups and their offsets, transactions."""

from .admin import Admin
from .claims import GroupClaim
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
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "FencedProducer",
    "GroupClaim",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "NewTopic",
    "ProducerDescription",
    "ResourceType",
    "TransactionDescription",
    "TransactionListing",
    "WhyHanging",
]
