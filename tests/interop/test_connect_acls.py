"""A task whose earlier instance may not be fenced is FAILED, and starts when the ACLs allow it (KIP-618).

On Apache Kafka with its authorizer. The worker is User:ANONYMOUS of a listener without authentication; ACLs are changed
by Kafka's own tool, as a super user of another listener.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apache_kafka import ApacheKafka, free_port, java

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from support.connect_workers import all_committed, assert_exactly_once, beats, committed, each_has, group, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret"'
GROUP = "acls"
IDS = f"{GROUP}-beats-"
"""How the transactional ids of the connector's tasks begin."""

RESOURCE = ("--transactional-id", IDS, "--resource-pattern-type", "prefixed")


class Cluster:
    """Apache Kafka with a second listener, where `allow` changes who may use the tasks' transactional ids."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self._address, self._client = f"127.0.0.1:{port}", directory / "admin.properties"
        self._client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN};\n")
        self.kafka = ApacheKafka(directory / "kafka")
        mechanism = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        everywhere = f"PLAINTEXT://127.0.0.1:{self.kafka.port},SASL_PLAINTEXT://{self._address}"
        self.kafka.properties = {
            "listeners": f"{everywhere},CONTROLLER://127.0.0.1:{self.kafka.controller_port}",
            "advertised.listeners": everywhere,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            mechanism: f'{LOGIN} user_admin="secret";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "allow.everyone.if.no.acl.found": "true",
        }

    async def allow(self, principal: str) -> None:
        """Let a principal use the transactional ids; from the first call on nobody else may."""
        await self._acls("--add", "--allow-principal", principal, "--operation", "All", *RESOURCE)
        while principal not in await self._acls("--list", *RESOURCE):  # the authorizer reads it from the metadata log
            pass

    async def _acls(self, *arguments: str) -> str:
        login = ("--bootstrap-server", self._address, "--command-config", str(self._client))
        done = await asyncio.to_thread(java, "org.apache.kafka.tools.AclCommand", *login, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("java and mvn are not installed")
    cluster = Cluster(tmp_path)
    with cluster.kafka:
        yield cluster


async def test_a_task_that_may_not_be_fenced_is_failed_until_it_may(cluster: Cluster, tmp_path: Path) -> None:
    bootstrap, path = cluster.kafka.address, "/connectors/beats/status"
    async with group(bootstrap, GROUP, tmp_path, {"task.restart.max.attempts": "1"}) as workers:
        rest = workers.rest(await workers.add())
        await rest.settled("PUT", "/connectors/beats/config", beats("beats", 2))
        await committed(bootstrap, "beats", each_has(20, 2))
        await cluster.allow("User:somebody")
        await rest.until(path, states("RUNNING", "FAILED", "FAILED"))
        await rest.settled("PUT", "/connectors/beats/config", beats("beats", 1))
        fencing = "could not fence 2 of 2 producers"
        known = await rest.until(path, lambda known: fencing in known["tasks"][0].get("trace", ""))
        assert states("RUNNING", "FAILED")(known)
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in known["tasks"][0]["trace"]
        await cluster.allow("User:ANONYMOUS")
        restarted = await rest.settled("POST", "/connectors/beats/restart?includeTasks=true&onlyFailed=true")
        assert (restarted[0], restarted[1]["tasks"][0]["state"]) == (202, "RESTARTING")
        await rest.until(path, states("RUNNING", "RUNNING"))
        # Only now: the refused tasks could not end their transactions, whose records are undecided until the fencing.
        before = await all_committed(bootstrap, "beats")
        enough = len(before[0]) + 20
        values = await committed(bootstrap, "beats", lambda values: len(values.get(0, ())) >= enough)
        assert_exactly_once(values)
