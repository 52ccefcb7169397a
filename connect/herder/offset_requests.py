"""Changes the offsets of a stopped connector (KIP-875): checks the request, asks the connector, writes the offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..calls import Calls
from ..data.json_text import dumps
from ..errors import BadRequestError, DataError
from ..stores.cluster_config import ClusterConfigState
from ..stores.config_records import TargetState
from ..stores.offset_store import OffsetStore
from ..worker.worker import Worker
from .validation import connector_class

Json = dict[str, Any]


def require_stopped(state: ClusterConfigState, name: str) -> None:
    """Raise BadRequestError unless a connector is stopped and has no tasks left."""
    if state.target_state(name) is not TargetState.STOPPED or state.tasks(name):
        raise BadRequestError(
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
        )


def require_storable(offsets: Sequence[tuple[Json, Json | None]]) -> None:
    """Raise BadRequestError unless the offsets can be stored in an offsets topic, whose records are JSON in UTF-8."""
    try:
        dumps(offsets)
    except DataError as error:
        raise BadRequestError(f"The offsets cannot be stored: {error}") from None


async def listed(stores: Sequence[OffsetStore], name: str) -> Json:
    """Return all offsets of a connector.

    An offset or a deletion in the connector's own offsets topic takes precedence over the worker's topic.
    """
    merged: dict[str, Json] = {}
    for store in reversed(stores):
        for partition, offset in await store.of_connector(name):
            merged[repr(sorted(partition.items(), key=str))] = {"partition": partition, "offset": offset}
    return {"offsets": [each for each in merged.values() if each["offset"] is not None]}


async def change(
    worker: Worker, config: Mapping[str, str], name: str, offsets: Sequence[tuple[Json, Json | None]] | None
) -> bool:
    """Write offsets, or delete all offsets if `offsets` is None. If the connector refuses this, raise its error.

    Returns whether the connector has checked the offsets.
    """
    if offsets is None:
        known = await listed(await worker.offset_stores(name, config), name)
        offsets = [(each["partition"], None) for each in known["offsets"]]
    calls = Calls(f"alter offsets of {name}")
    try:
        with worker.resolved(config) as settings:
            checked = await calls.call(connector_class(settings)().alter_offsets, settings, offsets)
    finally:
        calls.close()
    if offsets:
        await worker.write_offsets(name, config, offsets)
    return bool(checked)


def message(done: str, checked: bool) -> str:
    """Return Kafka Connect's message for a change; `done` is "altered" or "reset"."""
    if checked:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        "connector manages offsets externally, they will need to be manually "
        f"{done} in the system that the connector uses."
    )
