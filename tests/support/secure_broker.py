"""A broker process with TLS, and one user who can log in by every mechanism.

It has three listeners: SASL_SSL for logins, SSL for clients with certificates, and PLAINTEXT for the test itself, which
is a super user there. There is access control, without rules at first.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from oncelog import Acl, AclFilter, Admin
from oncelog.demo.processes import free_port
from support.broker import BrokerProcess
from support.identity_provider import ISSUER, IdentityProvider
from support.tls import HOST, Authority

PASSWORD: Final = "hunter2-of-the-user"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class SecureBroker(BrokerProcess):
    """`with SecureBroker(directory) as broker`; `broker.address` is the listener of the super user.

    `sasl_address` and `ssl_address` are the other listeners, `authority` signs their certificates, and `provider` the
    tokens for OAUTHBEARER.
    """

    def __init__(self, directory: Path, user: str = "alice", **settings: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.user = user
        self.authority = Authority(directory)
        self.provider = IdentityProvider()
        self.sasl_address, self.ssl_address = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
        arguments = ["--listen", f"SASL_SSL://{self.sasl_address}", "--listen", f"SSL://{self.ssl_address}"]
        login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{PASSWORD}";'
        defaults = {
            "ssl.keystore.location": str(self.authority.certificate("broker", HOST)),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.truststore.location": str(self.authority.trusted),
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM, "OAUTHBEARER")),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.write_keys(directory / "keys"),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": "oncelog",
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
        }
        for name, value in {**defaults, **settings}.items():
            arguments += ["--set", f"{name}={value}"]
        super().__init__(directory, *arguments)

    def __enter__(self) -> SecureBroker:
        self.start()
        asyncio.run(self._add_passwords())
        return self

    def allow(self, *acls: Acl) -> None:
        """Replace all rules by these."""
        asyncio.run(self._allow(acls))

    async def _add_passwords(self) -> None:
        async with Admin(bootstrap_servers=self.address) as admin:
            for mechanism in SCRAM:
                await admin.set_password(self.user, PASSWORD, mechanism=mechanism)

    async def _allow(self, acls: tuple[Acl, ...]) -> None:
        async with Admin(bootstrap_servers=self.address) as admin:
            await admin.delete_acls([AclFilter()])
            if acls:
                await admin.create_acls(acls)
