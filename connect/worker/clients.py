"""`client_settings`: the settings of the clients that a worker uses for one connector."""

from __future__ import annotations

from collections.abc import Mapping

from ...client.admin import Admin
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


async def writes_to_workers_cluster(worker: WorkerConfig, connector: ConnectorConfig) -> bool:
    """Return whether a connector's producer writes to the cluster that has the worker's topics.

    Other bootstrap.servers than the worker's may belong to the same cluster, such as the addresses of another listener.
    Then the cluster ids decide. Raises KafkaError if the brokers do not respond.
    """
    servers = client_settings(worker, connector, "producer")[_SERVERS].split(",")
    if {each.strip() for each in servers} == set(worker[_SERVERS]):
        return True
    return await cluster_id(worker.client("admin")) == await cluster_id(client_settings(worker, connector, "admin"))


async def cluster_id(client: Mapping[str, str]) -> str:
    """Return the id of the cluster to which an admin client with these settings connects; raises KafkaError."""
    async with Admin(dict(client)) as admin:
        return (await admin.describe_cluster()).cluster_id
