"""docs/transactions.md names every error that a transaction can end with, and says what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oncelog.cli.transaction_docs import requests, states
from oncelog.client.producer.coordinator_client import VERDICTS, Verdict
from oncelog.protocol.errors import ErrorCode

PAGE = (Path(__file__).parents[3] / "docs" / "transactions.md").read_text(encoding="utf-8")
ERRORS = PAGE.partition("## What an error means")[2]

WITHOUT_VERDICT = (
    "CONCURRENT_PRODUCER_COMMIT",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TRANSACTION_TIMEOUT",
    "INVALID_TXN_STATE",
    "KAFKA_STORAGE_ERROR",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "PENDING_TRANSACTION",
    "PRODUCER_FENCED",
    "TRANSACTIONAL_ID_NOT_FOUND",
    "UNSTABLE_OFFSET_COMMIT",
    "UNSUPPORTED_VERSION",
)
"""Codes with the verdict of all that are not listed."""


@pytest.mark.parametrize("name", sorted({*(code.name for code in VERDICTS), *WITHOUT_VERDICT}))
def test_error_is_explained(name: str) -> None:
    kind = re.sub(r"^(TOPIC|GROUP|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED", r"\1_", name)
    assert re.search(rf"^\| .*\b{kind}", ERRORS, re.MULTILINE), f"{name} is not in the table of errors"


@pytest.mark.parametrize("code", [code for code, verdict in VERDICTS.items() if verdict is Verdict.ABORT])
def test_abortable_error_is_called_so(code: ErrorCode) -> None:
    kind = re.sub(r"^(TOPIC|GROUP)_AUTHORIZATION_FAILED", r"\1_", code.name)
    (row,) = re.findall(rf"^\| [^|]*\b{kind}.*$", ERRORS, re.MULTILINE)
    assert "bortable" in row.split("|")[2]


def test_tables_have_every_state() -> None:
    assert states().count("\n") == 9
    assert "| → PrepareCommit, next epoch |" in requests()
