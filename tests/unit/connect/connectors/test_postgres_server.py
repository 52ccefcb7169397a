"""Which errors of its server PostgresSource takes for temporary."""

from __future__ import annotations

import pytest
from oncelog.connect import RetriableError

pytest.importorskip("psycopg", reason="needs the extra: pip install 'oncelog[connect-postgres]'")

import psycopg
from oncelog.connect.connectors.postgres.server import failure


@pytest.mark.parametrize(("state", "passing"), [("72000", True), ("40001", True), ("42601", False)])
def test_an_error_that_a_new_transaction_avoids_is_temporary(state: str, passing: bool) -> None:
    error = failure(psycopg.errors.lookup(state)("no more"), "the snapshot was interrupted")
    assert isinstance(error, RetriableError) is passing
