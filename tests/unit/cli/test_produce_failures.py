"""Which line `oncelog produce --txn` names as the cause of a failed transaction."""

from __future__ import annotations

import pytest
from oncelog.cli.produce import _cause
from oncelog.client.errors import AbortableError
from oncelog.protocol.errors import ErrorCode, KafkaError

REFUSED = KafkaError(ErrorCode.INVALID_RECORD, "the record is invalid")
NOT_SENT = AbortableError(ErrorCode.INVALID_RECORD, "the record is invalid")


@pytest.mark.parametrize("failures", [{1: NOT_SENT, 2: REFUSED}, {2: REFUSED, 3: NOT_SENT}])
def test_the_line_that_was_refused_is_named_and_not_one_that_was_not_sent_for_it(
    failures: dict[int, KafkaError],
) -> None:
    assert _cause(failures).startswith("line 2: ")


def test_a_refusal_that_only_ended_the_transaction_is_named() -> None:
    assert _cause({1: NOT_SENT, 2: NOT_SENT}).startswith("line 1: ")
