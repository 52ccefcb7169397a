"""The settings of the clients that a worker uses for one connector, and checks of the clusters that they connect to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...client.admin import Admin
from ..errors import ConnectError
from ..settings.connector import ConnectorConfig
from ..settings.overrides import accepted
from ..settings.worker import WorkerConfig

_SERVERS: Final = "bootstrap.servers"
_SECURITY: Final = ("security.", "ssl.", "sasl.")
_NAMES: Final = {"producer": "producer", "consumer": "consumer", "admin": "admin client"}


def client_settings(worker: WorkerConfig, connector: ConnectorConfig, kind: str) -> dict[str, str]:
    """Return the settings of a connector's producer, consumer or admin client.

    The connector's own settings override the worker's. If only the producer has its own `bootstrap.servers`, the other
    clients use them, too: topics, offsets and transactions are in the cluster to which the connector writes. Settings
    that the client does not have are left out (see `overrides.accepted`).
    """
    cluster = _servers(worker.with_prefix("producer.")) | _servers(worker.with_prefix(f"{kind}."))
    override = _servers(connector.with_prefix("producer.override."))
    own = accepted(kind, connector.with_prefix(f"{kind}.override."))
    return {**worker.client(kind), **cluster, **override, **own}


async def writes_to_workers_cluster(worker: WorkerConfig, connector: ConnectorConfig) -> bool:
    """Return whether a connector's producer writes to the cluster that has the worker's topics.

    If the producer's addresses differ from the worker's bootstrap.servers, the cluster ids are compared, because the
    addresses may be those of another listener of the same cluster. Brokers that report no id are treated as another
    cluster. Raises KafkaError if the brokers do not respond.
    """
    if _addresses(client_settings(worker, connector, "producer")) == set(worker[_SERVERS]):
        return True
    ours = await cluster_id(worker.client())
    return ours != "" and ours == await cluster_id(_asking(worker, connector, "producer"))


async def require_one_cluster(worker: WorkerConfig, connector: ConnectorConfig, kinds: Iterable[str]) -> None:
    """Raise ConnectError unless the clients of these kinds are in the cluster of the connector's producer.

    A client whose bootstrap.servers differ from the producer's is in the producer's cluster if the brokers report the
    same cluster id. Raises KafkaError if the brokers do not respond.
    """
    producer, expected = client_settings(worker, connector, "producer"), None
    for kind in kinds:
        client = client_settings(worker, connector, kind)
        if _addresses(client) == _addresses(producer):
            continue
        if expected is None:
            expected = await cluster_id(_asking(worker, connector, "producer"))
        actual = await cluster_id(_asking(worker, connector, kind))
        if not expected or actual != expected:
            raise ConnectError(
                f"the {_NAMES[kind]} of the connector has {_SERVERS}={client[_SERVERS]} and is not in the cluster of "
                f"its producer, {producer[_SERVERS]} (cluster ids {actual or 'unknown'} and {expected or 'unknown'}). "
                "Its records, offsets and transactions must be in one cluster: remove "
                f"{kind}.override.{_SERVERS} or {kind}.{_SERVERS}, or name brokers of the producer's cluster"
            )


async def cluster_id(client: Mapping[str, str]) -> str:
    """Return the id of the cluster to which an admin client with these settings connects. Raises KafkaError."""
    async with Admin(dict(client)) as admin:
        return (await admin.describe_cluster()).cluster_id


def _asking(worker: WorkerConfig, connector: ConnectorConfig, kind: str) -> dict[str, str]:
    """Return settings for an admin client that connects with the address and credentials of a client of this kind."""
    admin, other = (client_settings(worker, connector, each) for each in ("admin", kind))
    return {name: value for name, value in admin.items() if not _of_connection(name)} | {
        name: value for name, value in other.items() if _of_connection(name)
    }


def _of_connection(name: str) -> bool:
    return name == _SERVERS or name.startswith(_SECURITY)


def _servers(settings: Mapping[str, str]) -> dict[str, str]:
    return {_SERVERS: settings[_SERVERS]} if _SERVERS in settings else {}


def _addresses(settings: Mapping[str, str]) -> set[str]:
    return {each.strip() for each in settings[_SERVERS].split(",")}
