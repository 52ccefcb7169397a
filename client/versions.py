"""The API versions that client and broker share (KIP-35), and the cluster's features (KIP-584)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..protocol.errors import ErrorCode
from ..protocol.messages.api_versions import ApiVersionsResponse
from ..protocol.schema import Request, Versions
from .errors import UnsupportedVersionError

GROUP_AWARE_TRANSACTION: Final = "group.aware.transaction"
"""The feature of brokers that know the transaction extension's tags, key types and error codes."""

EXTENSION_VERSION: Final = 1
"""The extension version that this client sends in its request headers to brokers with the feature."""


class ApiVersionTable:
    """A broker's ApiVersions response. It is immutable, because an upgrade of the broker closes the connection."""

    __slots__ = ("_chosen", "_offered", "finalized_features", "supported_features")

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._offered = {api.api_key: api for api in response.api_keys}
        self._chosen: dict[tuple[int, int], int] = {}
        self.finalized_features: dict[str, int] = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
        self.supported_features: dict[str, Versions] = {
            feature.name: Versions(feature.min_version, feature.max_version) for feature in response.supported_features
        }

    @property
    def has_extension(self) -> bool:
        """Whether the cluster has finalized the transaction extension."""
        return self.finalized_features.get(GROUP_AWARE_TRANSACTION, 0) >= 1

    def version_of(self, request: type[Request[Any]], at_most: int = 32767) -> int:
        """Return the newest version that client and broker share. Raises UnsupportedVersionError if there is none."""
        key = request.spec.key
        chosen = self._chosen.get((key, at_most))
        if chosen is not None:
            return chosen
        ours = request.spec.stable
        theirs = self._range(key)
        name = request.__name__.removesuffix("Request")
        if theirs is None:
            raise UnsupportedVersionError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not offer {name}")
        version = min(ours.high, theirs.high, at_most)
        if version < max(ours.low, theirs.low):
            limit = f" up to {at_most}" if at_most < ours.high else ""
            raise UnsupportedVersionError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker offers {name} versions {theirs}, this client {ours}{limit}: they have none in common",
            )
        self._chosen[key, at_most] = version
        return version

    def supports(self, request: type[Request[Any]], version: int) -> bool:
        """Return whether client and broker both support exactly this version."""
        theirs = self._range(request.spec.key)
        return version in request.spec.stable and theirs is not None and version in theirs

    def highest(self, request: type[Request[Any]]) -> int:
        """Return the newest version that the broker supports, even if this client does not support it, or 0 if the
        broker does not offer the API.
        """
        theirs = self._range(request.spec.key)
        return 0 if theirs is None else theirs.high

    def offered(self) -> Iterable[int]:
        """Return the keys of the APIs that the broker offers."""
        return self._offered.keys()

    def _range(self, key: int) -> Versions | None:
        """Return the versions of an API that the broker offers, or None."""
        api = self._offered.get(key)
        return None if api is None else Versions(api.min_version, api.max_version)
