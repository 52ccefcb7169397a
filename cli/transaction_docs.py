"""Generate the tables of docs/transactions.md from the code.

The states come from their definitions. The effects of requests come from calling the coordinator's decision functions.
Only `make docs` and the test of the generated pages use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..broker.coordinator.transaction.decisions import (
    ProducerIdentity,
    Step,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
    verify_partition,
)
from ..broker.coordinator.transaction.metadata import (
    TransactionMetadata,
    add_partitions,
    complete_end,
    increment_epoch,
    new_metadata,
    prepare_end,
)
from ..broker.coordinator.transaction.state import (
    VALID_PREVIOUS_STATES,
    TopicPartition,
    TransactionState,
    TransactionVersion,
)
from ..client.producer.transaction_state import PREVIOUS, State
from ..protocol.documentation import table, updated
from ..protocol.errors import ErrorCode, KafkaError
from .transaction_states import STATES

_S = TransactionState
COLUMNS: Final = (
    _S.EMPTY,
    _S.ONGOING,
    _S.PREPARE_COMMIT,
    _S.PREPARE_ABORT,
    _S.COMPLETE_COMMIT,
    _S.COMPLETE_ABORT,
)

_EPOCH, _TIMEOUT_MS, _NOW_MS = 7, 60_000, 1_000
_TOPIC: TopicPartition = ("orders", 0)
_OTHER: TopicPartition = ("orders", 1)

Outcome = TransactionMetadata | Step | ErrorCode
Request = Callable[[TransactionMetadata, ProducerIdentity], Outcome]


def page(text: str) -> str:
    """Return `text`, the page docs/transactions.md, with its tables regenerated."""
    return updated(text, TABLES)


def states() -> str:
    """Return the table of the states of a transactional id."""
    rows = []
    for state in TransactionState:
        before = " ".join(previous.label for previous in sorted(VALID_PREVIOUS_STATES[state]) if previous is not state)
        rows.append((state.label, str(state.value), before or "–", STATES[state.label]))
    return table(("state", "id", "reached from", "meaning"), rows)


def producer_states() -> str:
    """Return the table of the states of the bundled client's producer."""
    rows = []
    for state in State:
        before = PREVIOUS[state] - {state}
        names = "any" if len(before) >= len(State) - 1 else ", ".join(one.name for one in State if one in before)
        rows.append((state.name, state.value, names))
    return table(("state", "meaning", "reached from"), rows)


def requests() -> str:
    """Return the table that shows what each request does in each state."""
    rows = []
    for name, request, version, retry in _REQUESTS:
        cells = []
        for state in COLUMNS:
            if retry and not (state.is_prepare or state.is_complete):
                cells.append("")  # no EndTxn has been sent that could be repeated
                continue
            metadata, identity = _at(state, version, retry=retry)
            cells.append(_cell(metadata, request, identity))
        rows.append((name, *cells))
    return table(("request", *(state.label for state in COLUMNS)), rows)


def _at(
    state: TransactionState, version: TransactionVersion, *, retry: bool
) -> tuple[TransactionMetadata, ProducerIdentity]:
    """Return the metadata of a transactional id in `state`, and the identity of its producer.

    With `retry`, the producer's identity is the one with which it sent its last EndTxn.
    """
    metadata = increment_epoch(new_metadata("id", 1000, _TIMEOUT_MS, _NOW_MS), _TIMEOUT_MS, -1, _NOW_MS)
    for _ in range(_EPOCH):
        metadata = increment_epoch(metadata, _TIMEOUT_MS, -1, _NOW_MS)
    if state is not _S.EMPTY:
        metadata = add_partitions(metadata, [_TOPIC], version, _NOW_MS)
    before = metadata
    if state not in (_S.EMPTY, _S.ONGOING):
        metadata = prepare_end(metadata, state.is_commit, version, _NOW_MS)
        if state.is_complete:
            metadata = complete_end(metadata, _NOW_MS)
    assert metadata.state is state
    known = before if retry else metadata
    return metadata, ProducerIdentity(known.producer_id, known.producer_epoch)


def _cell(metadata: TransactionMetadata, request: Request, identity: ProducerIdentity) -> str:
    try:
        outcome = request(metadata, identity)
    except KafkaError as error:
        outcome = error.code
    if outcome is Step.WAIT:
        return "waits"
    if outcome is Step.NOTHING:
        return "done already"
    if outcome is ErrorCode.NONE:
        return "goes in"
    if isinstance(outcome, ErrorCode):
        return outcome.name
    assert isinstance(outcome, TransactionMetadata)
    epoch = ", next epoch" if outcome.producer_epoch > metadata.producer_epoch else ""
    return f"→ {outcome.state.label}{epoch}"


def _init(own: bool) -> Request:
    return lambda metadata, identity: decide_init(
        metadata,
        pending=False,
        timeout_ms=_TIMEOUT_MS,
        expected=identity if own else None,
        server_version=TransactionVersion.TV_2,
        new_producer_id=None,
        now_ms=_NOW_MS,
    )


def _add(metadata: TransactionMetadata, identity: ProducerIdentity) -> Outcome:
    return decide_add(
        metadata,
        pending=False,
        identity=identity,
        partitions=[_OTHER],
        version=TransactionVersion.TV_2,
        now_ms=_NOW_MS,
    )


def _end(commit: bool, version: TransactionVersion) -> Request:
    return lambda metadata, identity: decide_end(
        metadata,
        pending=False,
        identity=identity,
        commit=commit,
        version=version,
        new_producer_id=None,
        now_ms=_NOW_MS,
    )


def _fence(metadata: TransactionMetadata, _: ProducerIdentity) -> Outcome:
    return decide_fence(metadata, pending=False, server_version=TransactionVersion.TV_2, now_ms=_NOW_MS)


_V1, _V2 = TransactionVersion.TV_1, TransactionVersion.TV_2
_REQUESTS: Final[tuple[tuple[str, Request, TransactionVersion, bool], ...]] = (
    ("InitProducerId of a new instance", _init(own=False), _V2, False),
    ("InitProducerId with the producer's own id and epoch (KIP-360)", _init(own=True), _V2, False),
    (
        "a group-aware InitProducerId of another transactional id, which claims the producer's partitions",
        _fence,
        _V2,
        False,
    ),
    ("AddPartitionsToTxn, AddOffsetsToTxn, Produce v12+, TxnOffsetCommit v5+: a new partition", _add, _V2, False),
    (
        "Produce below v12, TxnOffsetCommit below v5: a registered partition",
        lambda metadata, identity: verify_partition(metadata, identity, _TOPIC),
        _V1,
        False,
    ),
    ("EndTxn(commit) below v5", _end(True, _V1), _V1, False),
    ("EndTxn(abort) below v5", _end(False, _V1), _V1, False),
    ("EndTxn(commit) v5", _end(True, _V2), _V2, False),
    ("EndTxn(abort) v5", _end(False, _V2), _V2, False),
    ("EndTxn(commit) v5, repeated with the previous epoch", _end(True, _V2), _V2, True),
    ("EndTxn(abort) v5, repeated with the previous epoch", _end(False, _V2), _V2, True),
)

TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "transaction-states": states,
    "transaction-requests": requests,
    "producer-states": producer_states,
}
