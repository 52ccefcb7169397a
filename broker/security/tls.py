"""Make the TLS context of a listener from its `ssl.*` settings.

A context is never changed: when a file changes, a new context takes the place of the old one for later handshakes. TLS
1.2 and 1.3 are supported, but neither compression nor renegotiation.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from ...auth.distinguished_name import PrincipalRules, name_of
from ...auth.principal import ANONYMOUS, Principal
from ...auth.stores import (
    KeyMaterial,
    StoreError,
    key_from_pem,
    key_from_store,
    load_key,
    load_trusted,
    trusted_from_store,
)
from ...auth.suites import SuitesError, restrict
from ...settings import ConfigError
from ..listener_config import ListenerConfig, SecurityProtocol
from .alerts import AlertingObject
from .settings import ListenerSettings

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerTls:
    """The TLS settings of one listener, from which its contexts are made."""

    def __init__(self, listener: ListenerConfig, settings: ListenerSettings) -> None:
        """Check the settings without reading files. Raises ConfigError."""
        self.listener = listener
        self._settings = settings
        if listener.protocol is SecurityProtocol.SASL_SSL:
            # As in Kafka, clients of such a listener log in with SASL, and the value for all listeners does not apply.
            self.client_auth: str = settings.own.get("ssl.client.auth", "none")
        else:
            self.client_auth = settings.get("ssl.client.auth")
        self._rules = PrincipalRules(settings.get("ssl.principal.mapping.rules"))
        self._check_key()
        self._check_trusted()
        self._new_context()

    def _text(self, name: str) -> str:
        return str(self._settings.get(name))

    def _check_key(self) -> None:
        location, key = self._text("ssl.keystore.location"), self._text("ssl.keystore.key")
        if not (location or key):
            raise ConfigError(
                "ssl.keystore.location",
                f"is not set, but the listener {self.listener.name} uses {self.listener.protocol}. Set it to the path"
                " of a file with the broker's private key and certificate chain; `oncelog certs DIR` makes one for"
                " development",
            )
        if location and key:
            raise ConfigError("ssl.keystore.key", "is set together with ssl.keystore.location. Keep one of them")
        if bool(key) != bool(self._text("ssl.keystore.certificate.chain")):
            missing = "ssl.keystore.certificate.chain" if key else "ssl.keystore.key"
            raise ConfigError(missing, "is not set. Set the key and its certificate chain together")

    def _check_trusted(self) -> None:
        location, inline = self._text("ssl.truststore.location"), self._text("ssl.truststore.certificates")
        if location and inline:
            raise ConfigError(
                "ssl.truststore.certificates", "is set together with ssl.truststore.location. Keep one of them"
            )
        if self.client_auth != "none" and not (location or inline):
            raise ConfigError(
                "ssl.truststore.location",
                f"is not set, but ssl.client.auth is {self.client_auth}. Name the file with the certificates of the"
                " authorities that sign clients' certificates",
            )

    def principal(self, connection: ssl.SSLObject | ssl.SSLSocket) -> Principal | None:
        """Return the principal of a client: ANONYMOUS if it has no certificate, or None if no mapping rule matches."""
        certificate: Any = connection.getpeercert()
        if not certificate:
            return ANONYMOUS
        name = self._rules.apply(name_of(certificate["subject"]))
        return None if name is None else Principal("User", name)

    # ---- files

    @property
    def paths(self) -> set[str]:
        """The paths of the files in the settings."""
        return {self._text("ssl.keystore.location"), self._text("ssl.truststore.location")} - {""}

    def context(self) -> ssl.SSLContext:
        """Read the files and return a new context. Blocks. Raises a ConfigError that names the setting and the file."""
        context = self._new_context()
        setting = "ssl.keystore.location" if self._text("ssl.keystore.location") else "ssl.keystore.key"
        try:
            load_key(context, self._key_material())
            setting = (
                "ssl.truststore.location" if self._text("ssl.truststore.location") else "ssl.truststore.certificates"
            )
            if trusted := self._trusted():
                load_trusted(context, trusted)
        except StoreError as error:
            file = self._text(setting) if setting.endswith(".location") else ""
            problem = str(error) if file in str(error) else f"{file}: {error}"
            raise ConfigError(setting, problem) from error
        return context

    def _new_context(self) -> ssl.SSLContext:
        """Return a context without a key. Raises ConfigError if the TLS versions contradict the cipher suites."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslobject_class = AlertingObject
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
        context.verify_mode = _VERIFY[self.client_auth]
        try:
            restrict(context, self._settings.get("ssl.cipher.suites"), self._settings.get("ssl.enabled.protocols"))
        except SuitesError as error:
            raise ConfigError(error.setting, str(error)) from None
        return context

    def _key_material(self) -> KeyMaterial:
        key_password = self._text("ssl.key.password")
        if not (location := self._text("ssl.keystore.location")):
            pem = self._text("ssl.keystore.key") + "\n" + self._text("ssl.keystore.certificate.chain")
            return key_from_pem(pem, key_password)
        kind = self._text("ssl.keystore.type")
        return key_from_store(kind, Path(location), self._text("ssl.keystore.password"), key_password)

    def _trusted(self) -> str:
        if not (location := self._text("ssl.truststore.location")):
            return self._text("ssl.truststore.certificates")
        kind = self._text("ssl.truststore.type")
        return trusted_from_store(kind, Path(location), self._text("ssl.truststore.password"))
