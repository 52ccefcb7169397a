"""The settings that protect a worker's REST interface: its addresses, TLS, and who may use it.

The TLS settings have the prefix `listeners.https.`, or `admin.listeners.https.` for the addresses in `admin.listeners`.
If a worker has a setting with the prefix, only settings with the prefix apply. Otherwise, the settings without a prefix
apply. They also configure the worker's clients. This is Kafka Connect's rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from ...auth.stores import STORE_TYPES
from ...auth.suites import VERSIONS
from ..config import ConfigDef, ConfigKey, Importance, OneOf, OneOfIgnoringCase, Type, at_least
from ..config.java_regex import compiled
from ..config.protection import HIDDEN, asks_for_protection
from ..config.types import Password
from ..config.validators import RegularExpression
from ..errors import ConfigValueError

LISTENERS: Final = "listeners"
ADMIN_LISTENERS: Final = "admin.listeners"
HTTPS_PREFIXES: Final = (f"{LISTENERS}.https.", f"{ADMIN_LISTENERS}.https.")
BASIC_AUTH: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
"""Kafka Connect's extension for HTTP basic authentication."""

_LOW: Final = Importance.LOW


def _versions(name: str, value: list[str]) -> None:
    for version in value:
        OneOf(*VERSIONS)(name, version)


def _origins(name: str, value: list[str]) -> None:
    for origin in value:
        if origin != "*":
            RegularExpression()(name, origin)


def _extensions(name: str, value: list[str]) -> None:
    for extension in value:
        if extension not in (BASIC_AUTH, BASIC_AUTH.rpartition(".")[2], ""):
            problem = (
                f"is not supported. The only extension is {BASIC_AUTH}, with the users of rest.users.location. Remove"
                " the setting, and limit who can reach the port (rest.users.location, rest.bearer.token.location, TLS"
                " with listeners.https.ssl.client.auth, or a proxy)"
            )
            raise ConfigValueError(name, HIDDEN, problem)


ROWS: Final = (
    ConfigKey(
        "listeners",
        Type.LIST,
        ["http://:8083"],
        _LOW,
        "Addresses of the REST interface, each in the form http://host:port or https://host:port. Without a host: all "
        "interfaces if clients must authenticate, else 127.0.0.1. Kafka Connect always uses all interfaces.",
    ),
    ConfigKey(
        "admin.listeners",
        Type.LIST,
        None,
        _LOW,
        "Addresses for the endpoints under /admin, in the form of listeners. An empty list closes these endpoints. "
        "By default they are served on the addresses in listeners.",
    ),
    ConfigKey(
        "access.control.allow.origin",
        Type.LIST,
        [],
        _LOW,
        "Origins whose pages may use the REST interface in a browser (CORS), such as https://app.example.com: regular "
        "expressions, or * for all origins. By default none. Works only for clients that need not "
        "authenticate.",
        _origins,
    ),
    ConfigKey(
        "access.control.allow.methods",
        Type.LIST,
        [],
        _LOW,
        "Methods that pages of other origins may use; by default GET, POST and HEAD.",
    ),
    ConfigKey(
        "rest.advertised.host.name",
        Type.STRING,
        None,
        _LOW,
        "Host at which other workers reach this worker; by default the listener's, or an address of the machine if the "
        "listener is open on all interfaces.",
    ),
    ConfigKey(
        "rest.advertised.port",
        Type.INT,
        None,
        _LOW,
        "Port at which other workers reach this worker; by default the listener's.",
    ),
    ConfigKey(
        "rest.advertised.listener",
        Type.STRING,
        None,
        _LOW,
        "The scheme of the listener that other workers use: http or https. By default http, unless all listeners are "
        "https.",
        lambda name, value: None if value is None else OneOfIgnoringCase("http", "https")(name, value),
    ),
    ConfigKey(
        "rest.extension.classes",
        Type.LIST,
        [],
        _LOW,
        f"The only extension is {BASIC_AUTH}, which needs rest.users.location.",
        _extensions,
    ),
    ConfigKey(
        "rest.users.location",
        Type.STRING,
        "",
        Importance.MEDIUM,
        "File of the users of the REST interface, who authenticate with HTTP basic authentication. Each line has a "
        "name, a colon and a salted hash of the password; `oncelog user hash NAME` prints it. The worker reads the "
        "file again when it changes. All workers of a group need the same users. Not a setting of Kafka Connect.",
    ),
    ConfigKey(
        "rest.bearer.token.location",
        Type.STRING,
        "",
        Importance.MEDIUM,
        "File of the tokens of clients of the REST interface, one per line: clients send `Authorization: Bearer TOKEN`."
        " The worker reads the file again when it changes. Not a setting of Kafka Connect.",
    ),
    ConfigKey(
        "rest.health.public",
        Type.BOOLEAN,
        True,
        _LOW,
        "Whether GET /health works without credentials. Not a setting of Kafka Connect, which always requires them.",
    ),
    ConfigKey(
        "rest.ssl.reload.interval.ms",
        Type.LONG,
        10_000,
        _LOW,
        "Time between two checks for changed key and certificate files of the REST interface, in ms; 0: no checks. "
        "Not a setting of Kafka Connect.",
        at_least(0),
    ),
)

SSL: Final = ConfigDef(
    ConfigKey(
        "ssl.keystore.location", Type.STRING, "", _LOW,
        "File with the private key and certificate chain of the REST interface. The worker also uses them for its "
        "requests to other workers.",
    ),
    ConfigKey(
        "ssl.keystore.type", Type.STRING, "PEM", _LOW,
        "Format of ssl.keystore.location. With PKCS12 or JKS, the file may have either of these two formats. Kafka's"
        " default is JKS.",
        OneOf(*STORE_TYPES),
    ),
    ConfigKey("ssl.keystore.password", Type.PASSWORD, Password(""), _LOW, "Password of a PKCS12 or JKS file."),
    ConfigKey("ssl.key.password", Type.PASSWORD, Password(""), _LOW, "Password of the private key, if it has one."),
    ConfigKey(
        "ssl.truststore.location", Type.STRING, "", _LOW,
        "File with the certificates of the authorities that sign certificates of clients and of other workers. Without "
        "it, the worker trusts the authorities of the system in its requests to other workers.",
    ),
    ConfigKey(
        "ssl.truststore.type", Type.STRING, "PEM", _LOW,
        "Format of ssl.truststore.location. With PKCS12 or JKS, the file may have either of these two formats. Kafka's"
        " default is JKS.",
        OneOf(*STORE_TYPES),
    ),
    ConfigKey(
        "ssl.truststore.password", Type.PASSWORD, Password(""), _LOW, "Password of a PKCS12 or JKS file."
    ),
    ConfigKey(
        "ssl.client.auth", Type.STRING, "none", _LOW,
        "Whether clients must present a certificate: required, requested (clients may have none, but an untrusted one "
        "is refused) or none.", OneOf("required", "requested", "none"),
    ),
    ConfigKey("ssl.enabled.protocols", Type.LIST, list(VERSIONS), _LOW, "Accepted versions of TLS.", _versions),
    ConfigKey(
        "ssl.cipher.suites", Type.LIST, [], _LOW,
        "Accepted cipher suites, by their standard names or OpenSSL's. Empty: OpenSSL's defaults.",
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm", Type.STRING, "https", _LOW,
        "Whether the certificate of another worker must have the host name of the worker's address: https requires "
        "it, none or empty does not.",
        OneOf("https", "none", ""),
    ),
)  # fmt: skip
"""The TLS settings, with names that lack the prefix."""


@dataclass(frozen=True)
class RestAddress:
    """One of the `listeners`. An empty host means all interfaces."""

    encrypted: bool
    host: str
    port: int

    @property
    def scheme(self) -> str:
        """The scheme of the address: http or https."""
        return "https" if self.encrypted else "http"


class RestListeners:
    """The addresses of `listeners` or `admin.listeners`, which share their TLS settings."""

    def __init__(
        self, originals: Mapping[str, str], values: Mapping[str, Any], setting: str, *, has_credentials: bool
    ) -> None:
        """Read the addresses and the TLS settings. `setting` is `listeners` or `admin.listeners`.

        Raises ConfigValueError.
        """
        self._originals, self.setting = originals, setting
        prefix = f"{setting}.https."
        self._prefix = prefix if any(name.startswith(prefix) for name in originals) else ""
        self.addresses = [_address(setting, item) for item in values[setting] or ()]
        encrypted = any(address.encrypted for address in self.addresses)
        self._check_prefixed(setting, prefix, encrypted)
        self.ssl: Mapping[str, Any] | None = self._read_ssl() if encrypted else None
        """The TLS settings, with names that lack the prefix; None if no address uses TLS."""
        certificates = self.ssl is not None and self.ssl["ssl.client.auth"] == "required"
        self.authenticates = has_credentials or (certificates and all(each.encrypted for each in self.addresses))
        """Whether each client must prove who it is, by a password, a token or a certificate."""
        if not self.authenticates:
            self.addresses = [replace(address, host=address.host or "127.0.0.1") for address in self.addresses]

    def name(self, setting: str) -> str:
        """Return the full name of a TLS setting."""
        return f"{self._prefix}{setting}"

    def _read_ssl(self) -> dict[str, Any]:
        rows = ConfigDef(*(replace(row, name=self.name(row.name)) for row in SSL))
        values = {name.removeprefix(self._prefix): value for name, value in rows.parse(self._originals).items()}
        if not values["ssl.keystore.location"]:
            problem = "must be set, because a listener uses https: name the file with its private key and certificates"
            raise ConfigValueError(self.name("ssl.keystore.location"), "", problem)
        if values["ssl.client.auth"] != "none" and not values["ssl.truststore.location"]:
            problem = f"must be set with ssl.client.auth={values['ssl.client.auth']}: name the file of the authorities"
            raise ConfigValueError(self.name("ssl.truststore.location"), "", problem)
        return values

    def _check_prefixed(self, setting: str, prefix: str, encrypted: bool) -> None:
        for name, value in self._originals.items():
            if not name.startswith(prefix) or not asks_for_protection(value):
                continue
            if name.removeprefix(prefix) not in SSL.keys:
                raise ConfigValueError(name, HIDDEN, "is not supported. Remove the setting")
            if not encrypted:
                raise ConfigValueError(name, HIDDEN, _WITHOUT_EFFECT.format(setting))


class RestSettings:
    """The settings of a worker's REST interface, checked without reading files."""

    def __init__(self, originals: Mapping[str, str], values: Mapping[str, Any]) -> None:
        """Check the settings of a worker: `originals` contains them as text, and `values` contains the parsed values.

        Raises ConfigValueError for an invalid setting, and for one that requests protection but would have no effect.
        """
        self._originals, self._values = originals, values
        self.has_credentials = bool(values["rest.users.location"] or values["rest.bearer.token.location"])
        """Whether clients need a password or a token."""
        self.main = RestListeners(originals, values, LISTENERS, has_credentials=self.has_credentials)
        self.admin = RestListeners(originals, values, ADMIN_LISTENERS, has_credentials=self.has_credentials)
        self.serves_admin = values[ADMIN_LISTENERS] is None
        """Whether the endpoints under /admin are served on the addresses in `listeners`."""
        origins = values["access.control.allow.origin"]
        self.origins = [compiled(".*" if each == "*" else each) for each in origins]
        """The origins whose pages may use the REST interface (CORS)."""
        self.methods: list[str] = values["access.control.allow.methods"]
        """The methods that pages of other origins may use; empty for Kafka Connect's default."""
        self._check()

    @property
    def advertised(self) -> RestAddress:
        """The listener that other workers use."""
        scheme = self._values["rest.advertised.listener"]
        wanted = "http" if scheme is None else scheme.lower()
        return next((each for each in self.main.addresses if each.scheme == wanted), self.main.addresses[0])

    def _check(self) -> None:
        if not self.main.addresses:
            raise ConfigValueError(LISTENERS, [], "must have at least one address in the form http://host:port")
        encrypted = self.main.ssl is not None
        client_auth = self._originals.get("ssl.client.auth", "")
        if asks_for_protection(client_auth) and not encrypted and self.admin.ssl is None:
            raise ConfigValueError("ssl.client.auth", HIDDEN, _WITHOUT_EFFECT.format(LISTENERS))
        if str(self._values["rest.advertised.listener"]).lower() == "https" and not encrypted:
            problem = "needs an address in listeners that begins with https://"
            raise ConfigValueError("rest.advertised.listener", "https", problem)
        if any(self._values["rest.extension.classes"]) and not self._values["rest.users.location"]:
            problem = (
                "needs rest.users.location, the file of users, because a worker of oncelog has no JAAS configuration."
                " `oncelog user hash NAME` prints a line for this file"
            )
            raise ConfigValueError("rest.extension.classes", HIDDEN, problem)


_WITHOUT_EFFECT: Final = "has no effect, because no address in {} begins with https://. Add one, or remove the setting"


def _address(setting: str, item: str) -> RestAddress:
    parts = urlsplit(item if "://" in item else f"http://{item}")
    scheme = parts.scheme.lower()
    try:
        port = parts.port
    except ValueError:
        port = None
    if scheme not in ("http", "https") or port is None:
        raise ConfigValueError(setting, item, "must be http://host:port or https://host:port")
    return RestAddress(scheme == "https", parts.hostname or "", port)
