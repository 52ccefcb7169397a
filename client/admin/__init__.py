"""The admin client: topics, configs, groups and their offsets, offsets of partitions. `Admin` is what one uses."""

from .admin import Admin
from .values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    GroupMember,
    NewTopic,
)

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "NewTopic",
]
