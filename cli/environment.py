"""Name the environment variables that commands read. `oncelog serve` does not take them for settings."""

from __future__ import annotations

from enum import StrEnum


class Variable(StrEnum):
    """The name of an environment variable that a command reads, other than the settings of the broker."""

    BOOTSTRAP = "ONCELOG_BOOTSTRAP"
    CLIENT_CONFIG = "ONCELOG_CLIENT_CONFIG"
    CONNECT_URL = "ONCELOG_CONNECT_URL"
    HTTP_CA_FILE = "ONCELOG_HTTP_CA_FILE"
    HTTP_CERT_FILE = "ONCELOG_HTTP_CERT_FILE"
    HTTP_TOKEN = "ONCELOG_HTTP_TOKEN"  # noqa: S105 - a name
    HTTP_TOKEN_FILE = "ONCELOG_HTTP_TOKEN_FILE"  # noqa: S105 - a name
    HTTP_USER = "ONCELOG_HTTP_USER"
    HTTP_USER_FILE = "ONCELOG_HTTP_USER_FILE"
    PROFILE = "ONCELOG_PROFILE"
    PROFILES = "ONCELOG_PROFILES"
