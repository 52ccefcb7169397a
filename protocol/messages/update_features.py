"""Define UpdateFeaturesRequest and UpdateFeaturesResponse."""

from __future__ import annotations

from ..schema import Request, Response, Struct, array, boolean, int8, int16, int32, request, response, string, struct


@struct
class UpdatableFeatureResult(Struct):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@response(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Response):
    """The result of the whole request, and up to v1 of each feature."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


@struct
class FeatureUpdateKey(Struct):
    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@request(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    """Changes the finalized levels of features, such as transaction.version (KIP-584). v1 adds the type of the update:
    upgrade, safe downgrade or unsafe downgrade (KIP-778). Level 0 removes the feature.
    """

    timeout_ms: int = int32("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")
