"""Versions of plugins, with the outcomes of Kafka Connect 4.1 (KIP-891), whose FileStreamSource has version 4.1.0."""

from __future__ import annotations

import pytest
from oncelog.connect.errors import BadRequestError
from oncelog.connect.plugin_versions import mismatch


@pytest.mark.parametrize(
    "requested",
    [None, "latest", "4.1.0", " 4.1.0 ", "4.1", "4.1.0.0", "[4.1]", "[4.0,5.0)", "[4,5],[6,7]", "[4.1.0-rc1,)", "(,5]"],
)
def test_an_installed_version_is_found(requested: str | None) -> None:
    assert mismatch("F", requested, "4.1.0") is None


@pytest.mark.parametrize(
    ("requested", "shown"),
    [
        ("9.9.9", "[9.9.9,9.9.9]"),
        ("4.1.1", "[4.1.1,4.1.1]"),
        ("nope", "[nope,nope]"),
        ("", "[,]"),
        ("(,4.0)", "(,4.0)"),
        ("(4.1.0,)", "(4.1.0,)"),
        ("1.0,2.0", "[1.0,2.0]"),
        ("[1.0]", "[1.0,1.0]"),
        ("[1,2],[3,4]", "[1,2],[3,4]"),
        ("[4.1.0-SNAPSHOT]", "[4.1.0-SNAPSHOT,4.1.0-SNAPSHOT]"),
    ],
)
def test_another_version_is_not(requested: str, shown: str) -> None:
    message = f"Plugin F not found that matches the version range {shown}, available versions: [4.1.0]"
    assert mismatch("F", requested, "4.1.0") == message


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("[1.0", "Unbounded range: [1.0"),
        ("(1.0)", "Single version must be surrounded by []: (1.0)"),
        ("(1.0,1.0)", "Range defies version ordering: (1.0,1.0)"),
        ("[2.0,1.0]", "Range defies version ordering: [2.0,1.0]"),
        ("[1,2],3", "Only fully-qualified sets allowed in multiple set scenario: [1,2],3"),
        ("]", "Only fully-qualified sets allowed in multiple set scenario: []]"),
        ("[6,7],[4,5]", "Ranges overlap: [6,7],[4,5]"),
    ],
)
def test_what_is_not_a_range_is_refused(requested: str, message: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        mismatch("F", requested, "4.1.0")
    assert str(refused.value) == message
