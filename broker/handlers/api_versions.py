"""Handle ApiVersions: return the supported APIs and versions and the features (KIP-511, KIP-584)."""

from __future__ import annotations

import re
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ..api.handling import RequestContext, handles
from ..metadata.features import finalized_features, supported_features

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

FIRST_VERSION_WITH_ZERO: Final = 4
"""The first version in which a supported feature may have the minimum 0.

Clients of lower versions fail on such a feature (KAFKA-17011), so it is omitted from their responses.
"""


@handles(ApiVersionsRequest)
def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3:
        for software in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE_NAME.fullmatch(software):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{software!r} is not a client software name or version. Use a-z, A-Z, 0-9, '-' and '.'.",
                )
        context.connection.state["client_software"] = (request.client_software_name, request.client_software_version)
    config, metadata = context.broker.config, context.broker.metadata
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api.key, api.min_version, api.max_version) for api in context.broker.served_apis()],
        supported_features=[
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in supported_features(config).items()
            if low > 0 or context.api_version >= FIRST_VERSION_WITH_ZERO
        ],
        finalized_features_epoch=metadata.epoch,
        finalized_features=[
            FinalizedFeatureKey(name, level, level)
            for name, level in finalized_features(config, metadata.features).items()
        ],
    )
