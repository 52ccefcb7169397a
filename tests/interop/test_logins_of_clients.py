"""Every client by every kind of login over TLS: an idempotent producer, transactions and a group.

Each client writes 5 records, commits 5 and aborts 5 in transactions, and reads the 10 committed ones in a group. Its
principal may use only the topic, the group and the transactional id of the test, so that a client without a principal
fails. Clients without a certificate or a login are super users here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider
from oncelog import Acl, Admin
from support.client_programs import CLIENTS, copied, need, run
from support.reading import make_topic, read_topic
from support.secure_broker import PASSWORD, SecureBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.oncelog_only(reason="is about the broker's own listeners"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # kafka-python leaves a socket open
]

LOGINS = ("TLS", "mTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
KINDS = ("plain", "committed", "aborted")
DEADLINE_S = 60


@dataclass
class Login:
    """How a client connects, and the name of its topic, group and transactional id."""

    bootstrap: str
    mechanism: str
    """The SASL mechanism, or empty."""
    user: str
    password: str
    token: str
    ca: str
    certificate: str
    """File with the client's certificate and key, or empty."""
    name: str


def values(kind: str) -> list[bytes]:
    return [b"%s-%d" % (kind.encode(), number) for number in range(5)]


# ---- the clients


def confluent_kafka(login: Login, directory: Path) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": "SASL_SSL" if login.mechanism else "SSL",
        "ssl.ca.location": login.ca,
    }
    if login.certificate:
        settings |= {"ssl.certificate.location": login.certificate, "ssl.key.location": login.certificate}
    if login.mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (login.token, time.time() + 3600)}
    elif login.mechanism:
        settings |= {"sasl.mechanism": login.mechanism, "sasl.username": login.user, "sasl.password": login.password}

    def send(producer: Producer, kind: str) -> None:
        for value in values(kind):
            producer.produce(login.name, value)
        assert producer.flush(DEADLINE_S) == 0

    send(Producer({**settings, "enable.idempotence": True}), "plain")
    producer = Producer({**settings, "transactional.id": login.name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    send(producer, "committed")
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    send(producer, "aborted")
    producer.abort_transaction(DEADLINE_S)
    group = {"group.id": login.name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, **group, "isolation.level": "read_committed"})
    consumer.subscribe([login.name])
    deadline, read = time.monotonic() + DEADLINE_S, 0
    while read < 10:
        assert time.monotonic() < deadline, read
        for message in consumer.consume(10, 1.0):
            assert message.error() is None, message.error()
            read += 1
    consumer.commit(asynchronous=False)
    consumer.close()


def aiokafka(login: Login, directory: Path) -> None:
    asyncio.run(_aiokafka(login))


async def _aiokafka(login: Login) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return login.token

    settings = _python_settings(login, Provider())

    async def send(producer: AIOKafkaProducer, kind: str) -> None:
        for value in values(kind):
            await producer.send_and_wait(login.name, value)

    async with AIOKafkaProducer(**settings, enable_idempotence=True) as producer:
        await send(producer, "plain")
    async with AIOKafkaProducer(**settings, transactional_id=login.name) as producer:
        await producer.begin_transaction()
        await send(producer, "committed")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await send(producer, "aborted")
        await producer.abort_transaction()
    group: dict[str, Any] = {"group_id": login.name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(login.name, **settings, **group, isolation_level="read_committed") as consumer:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(10):
                await consumer.getone()
        await consumer.commit()


def kafka_python(login: Login, directory: Path) -> None:
    class Provider(KafkaPythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return login.token

    settings = _python_settings(login, Provider())

    def send(producer: KafkaProducer, kind: str) -> None:
        for value in values(kind):
            producer.send(login.name, value).get(DEADLINE_S)

    producer = KafkaProducer(**settings, enable_idempotence=True)
    send(producer, "plain")
    producer.close()
    producer = KafkaProducer(**settings, transactional_id=login.name, acks="all")
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, "committed")
    producer.commit_transaction()
    producer.begin_transaction()
    send(producer, "aborted")
    producer.abort_transaction()
    producer.close()
    group: dict[str, Any] = {"group_id": login.name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    group["consumer_timeout_ms"] = DEADLINE_S * 1000
    consumer = KafkaConsumer(login.name, **settings, **group, isolation_level="read_committed")
    for _ in range(10):
        next(consumer)
    consumer.commit()
    consumer.close()


def _python_settings(login: Login, provider: object) -> dict[str, Any]:
    """Return the settings that aiokafka and kafka-python have in common."""
    import ssl

    context = ssl.create_default_context(cafile=login.ca)
    if login.certificate:
        context.load_cert_chain(login.certificate)
    settings: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "ssl_context": context}
    if not login.mechanism:
        return {**settings, "security_protocol": "SSL"}
    settings |= {"security_protocol": "SASL_SSL", "sasl_mechanism": login.mechanism}
    if login.mechanism == "OAUTHBEARER":
        return {**settings, "sasl_oauth_token_provider": provider}
    return {**settings, "sasl_plain_username": login.user, "sasl_plain_password": login.password}


def kafkajs(login: Login, directory: Path) -> None:
    assert "OK" in run("node", "logins.js", json.dumps(asdict(login)), cwd=directory, timeout=120)


def franz_go(login: Login, directory: Path) -> None:
    assert "OK" in run("./franz-go", json.dumps(asdict(login)), cwd=directory, timeout=120)


def sarama(login: Login, directory: Path) -> None:
    assert "OK" in run("./sarama", json.dumps(asdict(login)), cwd=directory, timeout=120)


def java(login: Login, directory: Path) -> None:
    from support.apache_kafka import class_path, jvm_options

    security = "org.apache.kafka.common.security"
    settings = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": "SASL_SSL" if login.mechanism else "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": login.ca,
    }
    options = []
    if login.certificate:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": login.certificate}
    if login.mechanism == "OAUTHBEARER":
        token = directory / f"{login.name}.token"
        token.write_text(login.token)
        settings |= {
            "sasl.jaas.config": f"{security}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{security}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
        options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"]
        options += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token}"]
    elif login.mechanism:
        module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
        user = f'username="{login.user}" password="{login.password}"'
        settings["sasl.jaas.config"] = f"{security}.{module} required {user};"
    if login.mechanism:
        settings["sasl.mechanism"] = login.mechanism
    file = directory / f"{login.name}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    program = ("-cp", f"{directory}:{class_path()}", "Logins", str(file), login.name)
    assert "OK" in run("java", *jvm_options("128m"), *options, *program, cwd=directory, timeout=120)


# ---- what they need


def _build_nothing(directory: Path) -> Path:
    return directory


def _build_js(directory: Path) -> Path:
    need("npm")
    home = copied("js", directory)
    run("npm", "install", "--silent", "--no-package-lock", cwd=home)
    return home


def _build_go(directory: Path) -> Path:
    need("go")
    home = copied("go", directory)
    run("go", "build", "-o", "franz-go", "./logins", cwd=home)
    run("go", "build", "-o", "sarama", "./logins_sarama", cwd=home)
    return home


def _build_java(directory: Path) -> Path:
    need("java")
    need("mvn")
    from support.apache_kafka import class_path

    run("javac", "-cp", class_path(), "-d", str(directory), str(CLIENTS / "java" / "Logins.java"), cwd=directory)
    return directory


Client = Callable[[Login, Path], None]
BUILDS: dict[Client, Callable[[Path], Path]] = {
    confluent_kafka: _build_nothing,
    aiokafka: _build_nothing,
    kafka_python: _build_nothing,
    kafkajs: _build_js,
    franz_go: _build_go,
    sarama: _build_go,
    java: _build_java,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    settings = {"listener.name.ssl.ssl.client.auth": "requested"}
    with SecureBroker(tmp_path_factory.mktemp("secure"), **settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Client], Path]:
    """Return a function that prepares a client's programs once, and returns their directory."""
    homes: dict[Callable[[Path], Path], Path] = {}

    def build(client: Client) -> Path:
        make = BUILDS[client]
        if make not in homes:
            homes[make] = make(tmp_path_factory.mktemp(client.__name__))
        return homes[make]

    return build


@pytest.mark.parametrize("way", LOGINS)
@pytest.mark.parametrize("client", BUILDS, ids=lambda client: client.__name__)
def test_client_logs_in(
    broker: SecureBroker, built: Callable[[Client], Path], fresh_name: Callable[[str], str], client: Client, way: str
) -> None:
    directory = built(client)
    name = make_topic(broker.address, fresh_name("logins"))
    login = Login(
        bootstrap=broker.ssl_address if "TLS" in way else broker.sasl_address,
        mechanism="" if "TLS" in way else way,
        user=broker.user,
        password=PASSWORD,
        token=broker.provider.token(broker.user),
        ca=str(broker.authority.trusted),
        certificate=str(broker.authority.certificate(broker.user)) if way == "mTLS" else "",
        name=name,
    )
    principal = f"User:CN={broker.user}" if way == "mTLS" else f"User:{broker.user}"
    rules = [("TOPIC", "READ"), ("TOPIC", "WRITE"), ("GROUP", "READ"), ("TRANSACTIONAL_ID", "WRITE")]
    broker.allow(*(Acl(kind, name, principal, operation) for kind, operation in rules))
    client(login, directory)
    assert _written(broker, name, committed=True) == sorted([*values("plain"), *values("committed")])
    assert _written(broker, name, committed=False) == sorted(value for kind in KINDS for value in values(kind))
    assert 10 <= asyncio.run(_group_position(broker, name)) <= 17, "5 + 5 + marker + 5 + marker"


def _written(broker: SecureBroker, name: str, *, committed: bool) -> list[bytes]:
    records = read_topic(broker.address, name, committed).values()
    return sorted(message.value() or b"" for messages in records for message in messages)


async def _group_position(broker: SecureBroker, name: str) -> int:
    async with Admin(bootstrap_servers=broker.address) as admin:
        offsets = await admin.group_offsets(name)
    return next(iter(offsets.values())).offset
