"""docs/security.md names only tests, settings and targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oncelog.broker.config import BrokerConfig
from oncelog.client.config import ClientConfig

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.split("\n") if line.startswith("| ") and line.count(" | ") == 3]
TESTS = sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE)))
SETTINGS = sorted({name for row in ROWS for name in re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", row.split(" | ")[2])})


def test_the_tables_were_found() -> None:
    assert len(ROWS) > 20
    assert len(TESTS) > 25
    assert len(SETTINGS) > 15


@pytest.mark.parametrize("name", TESTS)
def test_each_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not function or re.search(rf"^(async )?def {function}\(", text, re.MULTILINE)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_exists(name: str) -> None:
    known = {*BrokerConfig.rows, *(setting.name for setting in ClientConfig.settings())}
    assert name in known
