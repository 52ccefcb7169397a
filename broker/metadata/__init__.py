"""The cluster's metadata: topics with their settings, credentials, access rules, tokens, quotas, and feature levels."""

from .metadata import Metadata, Topic

__all__ = ["Metadata", "Topic"]
