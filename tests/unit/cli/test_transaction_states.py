"""Every state that a broker may name has its explanation."""

from __future__ import annotations

from oncelog.broker.coordinator.transaction.state import TransactionState
from oncelog.cli.transaction_states import STATES


def test_every_state_is_explained() -> None:
    assert set(STATES) == {state.label for state in TransactionState}
