"""Kafka's own command-line tools on a TLS listener whose key is in JKS or PKCS #12: clients with PEM and PKCS #12."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from oncelog.demo.processes import free_port
from support.apache_kafka import java
from support.broker import BrokerProcess
from support.tls import HOST, Authority

pytestmark = [
    pytest.mark.oncelog_only(reason="is about the broker's own listeners"),
    pytest.mark.skipif(shutil.which("keytool") is None, reason="needs Java"),
]


def keytool(*words: str) -> None:
    subprocess.run(["keytool", *words, "-storepass", "hunter2"], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_java_tools_write_and_read(authority: Authority, tmp_path: Path, kind: str) -> None:
    """The broker's key is Java's own: keytool makes it, and the authority's certificate goes into a truststore."""
    store = tmp_path / "broker.jks"  # PKCS #12 by default, in spite of the name that Java's users give it
    keytool(
        *("-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-dname", f"CN={HOST}", "-ext", f"san=dns:{HOST}"),
        *("-keystore", str(store), "-keypass", "hunter2", "-storetype", "JKS" if kind == "PEM" else "PKCS12"),
    )
    own = tmp_path / "own.pem"
    keytool("-exportcert", "-rfc", "-alias", "broker", "-keystore", str(store), "-file", str(own))
    trusted = tmp_path / "trusted.p12"
    keytool("-importcert", "-noprompt", "-alias", "a", "-file", str(own), "-keystore", str(trusted))
    alice = authority.certificate("alice")
    settings = tmp_path / "client.properties"
    trust = (
        f"ssl.truststore.type=PEM\nssl.truststore.location={own}\n"
        if kind == "PEM"
        else f"ssl.truststore.type=PKCS12\nssl.truststore.location={trusted}\nssl.truststore.password=hunter2\n"
    )
    settings.write_text(f"security.protocol=SSL\n{trust}ssl.keystore.type=PEM\nssl.keystore.location={alice}\n")
    port = free_port()
    arguments = ["--listen", f"SSL://{HOST}:{port}"]
    for setting in (
        f"ssl.keystore.location={store}",
        "ssl.keystore.type=JKS",
        "ssl.keystore.password=hunter2",
        "ssl.client.auth=required",
        f"ssl.truststore.location={authority.trusted}",
    ):
        arguments += ["--set", setting]
    address = f"{HOST}:{port}"
    with BrokerProcess(tmp_path, *arguments):
        made = java(
            *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address),
            *("--command-config", str(settings), "--create", "--topic", "orders", "--partitions", "2"),
        )
        assert made.returncode == 0, made.stdout + made.stderr
        sent = java(
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", "orders", "--num-records", "2000"),
            *("--record-size", "1000", "--throughput", "-1", "--producer.config", str(settings)),
            *("--producer-props", f"bootstrap.servers={address}"),
        )
        assert "2000 records sent" in sent.stdout, sent.stdout + sent.stderr
        read = java(
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address, "--topic", "orders"),
            *("--from-beginning", "--max-messages", "2000", "--consumer.config", str(settings)),
            *("--timeout-ms", "60000"),
        )
        assert read.stdout.count("\n") == 2000, read.stderr
