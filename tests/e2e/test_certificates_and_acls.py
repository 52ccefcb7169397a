"""Certificates say who a client is, and ACLs what it may do: both together, with real clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import oncelog
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from oncelog.broker.acls.acl import Acl
from oncelog.broker.node import BrokerNode
from support.access import Op, Type, rule
from support.tls import HOST, Authority, broker_with_tls, tls_port

pytestmark = pytest.mark.oncelog_only(reason="is about the broker's own listeners")


@asynccontextmanager
async def broker_of_admin(authority: Authority) -> AsyncIterator[BrokerNode]:
    """Start a broker whose only super user has the certificate CN=admin; its clients need certificates."""
    settings = {
        "listeners": f"SSL://{HOST}:0",
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(authority.trusted),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:admin",
    }
    async with broker_with_tls(authority, **settings) as broker:
        async with oncelog.Admin(client(authority, broker, "admin")) as admin:
            for topic in ("orders", "salaries"):
                await admin.create_topic(topic, partitions=1)
        yield broker


def client(authority: Authority, broker: BrokerNode, name: str) -> dict[str, Any]:
    """Return the settings of a client with a certificate for this name."""
    certificate = str(authority.certificate(name))
    return {
        "bootstrap.servers": f"{HOST}:{tls_port(broker)}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.trusted),
        "ssl.certificate.location": certificate,
        "ssl.key.location": certificate,
    }


def may_write(name: str, topic: str) -> Acl:
    return rule(Op.WRITE, Type.TOPIC, topic, principal=f"User:{name}")


async def test_a_rule_is_for_the_client_that_the_certificate_names(authority: Authority) -> None:
    async with broker_of_admin(authority) as broker:
        await broker.metadata.create_acls([may_write("alice", "orders")])
        async with oncelog.Producer(client(authority, broker, "alice")) as alice:
            await alice.send("orders", b"hello")
            with pytest.raises(oncelog.AuthorizationError, match="salaries"):
                await alice.send("salaries", b"hello")
        async with oncelog.Producer(client(authority, broker, "bob"), enable_idempotence=False) as bob:
            with pytest.raises(oncelog.AuthorizationError, match="orders"):
                await bob.send("orders", b"hello")


async def test_a_rule_counts_at_once_on_an_open_connection(authority: Authority) -> None:
    async with broker_of_admin(authority) as broker:
        permission = may_write("alice", "orders")
        await broker.metadata.create_acls([permission])
        async with oncelog.Producer(client(authority, broker, "alice")) as alice:
            await alice.send("orders", b"hello")
            await broker.metadata.delete_acls([permission])
            with pytest.raises(oncelog.AuthorizationError):
                await alice.send("orders", b"hello")


async def test_librdkafka_with_a_certificate_may_do_what_its_rules_allow(authority: Authority) -> None:
    async with broker_of_admin(authority) as broker:
        await broker.metadata.create_acls([may_write("alice", "orders")])
        errors: dict[str, Any] = {}

        def note(error: Any, message: Any) -> None:
            errors[message.topic()] = error

        producer = ConfluentProducer(client(authority, broker, "alice"))
        for topic in ("orders", "salaries"):
            producer.produce(topic, b"hello", on_delivery=note)
        await asyncio.to_thread(producer.flush, 60)
        assert errors["orders"] is None
        assert "authorization failed" in str(KafkaException(errors["salaries"])).lower()
