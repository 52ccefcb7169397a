"""`client_settings`: the settings of the clients that a worker uses for one connector."""

from __future__ import annotations

from ..settings.connector import ConnectorConfig
from ..settings.worker import WorkerConfig

_SERVERS = "bootstrap.servers"


def client_settings(worker: WorkerConfig, connector: ConnectorConfig, kind: str) -> dict[str, str]:
    """Return the settings of a connector's producer, consumer or admin client: the worker's with its overrides.

    If only the producer has its own `bootstrap.servers`, the other clients use them, too: topics, offsets and
    transactions are in the cluster to which the connector writes.
    """
    producer = connector.with_prefix("producer.override.")
    cluster = {_SERVERS: producer[_SERVERS]} if _SERVERS in producer else {}
    return {**worker.client(kind), **cluster, **connector.with_prefix(f"{kind}.override.")}


def writes_to_workers_cluster(worker: WorkerConfig, connector: ConnectorConfig) -> bool:
    """Return whether a connector's producer has the worker's bootstrap.servers, in any order."""
    servers = client_settings(worker, connector, "producer")[_SERVERS].split(",")
    return {each.strip() for each in servers} == set(worker[_SERVERS])
