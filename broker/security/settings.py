"""Define the security settings of listeners, with Kafka's names and defaults.

Each setting applies to all listeners, and `listener.name.<listener>.<setting>` replaces it for one listener. As in
Kafka, `ssl.client.auth` without such a prefix does not apply to SASL_SSL listeners, where clients log in with SASL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...auth.mechanism_names import OAUTHBEARER, PLAIN, SCRAM_NUMBERS
from ...auth.stores import STORE_TYPES
from ...auth.suites import VERSIONS
from ...settings import Table, at_least, between, integer, long, password, text, text_list

CLIENT_AUTH: Final = ("none", "requested", "required")


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The settings of one listener.

    `own` contains the values that are set for this listener alone. `common` returns a setting's value for all
    listeners.
    """

    own: Mapping[str, Any]
    common: Callable[[str], Any]

    def get(self, name: str) -> Any:
        """Return the value of a setting by its name without prefix."""
        return self.own[name] if name in self.own else self.common(name)


def _problem_of_rules(text: str) -> str | None:
    """Return why `ssl.principal.mapping.rules` is invalid, or None."""
    from ...auth.distinguished_name import rules_problem  # imported at its first use, not at start

    return rules_problem(text)


def _key_set(url: str) -> str | None:
    """Return why a key set cannot be fetched from this address, or None."""
    if not url or url.startswith(("https://", "http://", "file:///")):
        return None
    return "is not the address of a key set. Write https://... or file:///..."


class SecuritySettings(Table):
    """The settings that protect listeners."""

    ssl_keystore_type: str = text(
        "PEM",
        choices=STORE_TYPES,
        doc="The format of the file with the broker's private key and certificate chain. With PKCS12 or JKS,"
        " the file may have either of these two formats. Kafka's default is JKS.",
        per_listener=True,
    )
    ssl_keystore_location: str = text(
        "",
        doc="The file with the broker's private key and certificate chain. The broker reads it again when it changes;"
        " open connections stay open.",
        per_listener=True,
    )
    ssl_keystore_password: str = password(
        doc="The password of a PKCS12 or JKS file in ssl.keystore.location.", per_listener=True
    )
    ssl_keystore_key: str = password(
        doc="The broker's private key in PEM format, in place of a file. PKCS #8, optionally encrypted with"
        " ssl.key.password.",
        per_listener=True,
    )
    ssl_keystore_certificate_chain: str = password(
        doc="The broker's certificate chain in PEM format, in place of a file.", per_listener=True
    )
    ssl_key_password: str = password(
        doc="The password of the private key, if the key itself is encrypted.", per_listener=True
    )
    ssl_truststore_type: str = text(
        "PEM",
        choices=STORE_TYPES,
        doc="The format of the file with the trusted certificates. With PKCS12 or JKS, the file may have either of"
        " these two formats. Kafka's default is JKS.",
        per_listener=True,
    )
    ssl_truststore_location: str = text(
        "",
        doc="The file with the certificates of the authorities that sign clients' certificates. The broker reads it"
        " again when it changes.",
        per_listener=True,
    )
    ssl_truststore_password: str = password(
        doc="The password of a PKCS12 or JKS file in ssl.truststore.location.", per_listener=True
    )
    ssl_truststore_certificates: str = password(
        doc="The trusted certificates in PEM format, in place of a file.", per_listener=True
    )
    ssl_client_auth: str = text(
        "none",
        choices=CLIENT_AUTH,
        doc="Whether clients must present a certificate. required: only clients with a trusted certificate are"
        " accepted. requested: clients without a certificate are accepted, too. none: the broker asks for no"
        " certificate. A SASL_SSL listener uses this setting only with the prefix listener.name.<listener>.",
        per_listener=True,
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT",
        _problem_of_rules,
        doc="How the subject of a client's certificate becomes the name of its principal (KIP-371): rules of the form"
        " RULE:pattern/replacement/, with L or U at the end for lower or upper case, separated by commas. The first"
        " rule whose pattern matches the whole subject applies. DEFAULT: the whole subject. If no rule matches, the"
        " connection is closed.",
        per_listener=True,
    )
    ssl_enabled_protocols: list[str] = text_list(
        list(VERSIONS),
        choices=tuple(VERSIONS),
        doc="The versions of TLS that the broker accepts.",
        per_listener=True,
    )
    ssl_cipher_suites: list[str] = text_list(
        [],
        doc="The cipher suites that the broker accepts, by their standard names or OpenSSL's. Empty: OpenSSL's"
        " defaults. A list without a suite of TLS 1.3 excludes that version. Python offers the suites of TLS 1.3 only"
        " together, so a list must name all of them or none.",
        per_listener=True,
    )
    ssl_reload_interval_ms: int = integer(
        10000,
        at_least(0),
        doc="The time in ms between two checks for changed key or certificate files. 0: never.",
    )
    connection_authentication_timeout_ms: int = integer(
        30000,
        at_least(1),
        doc="The longest time in ms that the TLS handshake of a connection may take. The SASL login after it may take"
        " the same time again. A connection that takes longer is closed.",
    )
    connection_failed_authentication_delay_ms: int = integer(
        100,
        between(0, 60000),
        doc="The time in ms before a refused login gets its response and its connection is closed.",
    )
    connections_max_reauth_ms: int = long(
        0,
        at_least(0),
        doc="The time in ms within which a client must log in with SASL again (KIP-368). The broker announces the time,"
        " and clients log in again on the same connection. 0: a login lasts as long as its connection.",
        per_listener=True,
    )
    sasl_enabled_mechanisms: list[str] = text_list(
        list(SCRAM_NUMBERS),
        choices=(*SCRAM_NUMBERS, PLAIN, OAUTHBEARER),
        doc="The SASL mechanisms by which clients can log in. SCRAM: the users are in the cluster's metadata. PLAIN:"
        " the users are those of plain.users.location and plain.sasl.jaas.config. OAUTHBEARER: clients send a token"
        " that a key of sasl.oauthbearer.jwks.endpoint.url has signed. Kafka's default is GSSAPI.",
        per_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = text(
        "",
        _key_set,
        doc="The address of the identity provider's public keys (a JSON Web Key Set) for OAUTHBEARER: https://..., or"
        " file:///... for a file.",
        per_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3600000, at_least(1000), doc="The time in ms after which the broker reads the keys for OAUTHBEARER again."
    )
    sasl_oauthbearer_expected_issuer: str = text(
        "", doc="The issuer (claim iss) that a token must have. Empty: any.", per_listener=True
    )
    sasl_oauthbearer_expected_audience: list[str] = text_list(
        [],
        doc="The accepted audiences (claim aud). A token must have at least one of them. Empty: any. Set it if the"
        " identity provider also issues tokens for other services, because those tokens would be accepted here.",
        per_listener=True,
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30,
        between(0, 3600),
        doc="The time in seconds by which the clocks of the identity provider and of the broker may differ.",
        per_listener=True,
    )
    sasl_oauthbearer_sub_claim_name: str = text(
        "sub",
        doc="The claim of a token that contains the name of the user, which becomes the principal.",
        per_listener=True,
    )
    sasl_server_max_receive_size: int = integer(
        65536,
        between(1024, 104857600),
        doc="The largest request in bytes that a client can send before it has logged in with SASL. Raise it for larger"
        " tokens. Kafka's default is 524288, but many requests of that size would use up the memory for other"
        " requests.",
    )
    sasl_server_max_waiting_logins: int = integer(
        1000,
        at_least(1),
        doc="The maximum number of logins that wait for a slow check: the comparison of a password with its salted"
        " hash (PLAIN), or the verification of a large token (OAUTHBEARER). If there are more, the connection of one of"
        " them is closed. A login whose password was recently found to be right does not wait. Not a setting of Kafka.",
    )
    sasl_server_max_waiting_logins_per_ip: int = integer(
        200,
        at_least(1),
        doc="The maximum number of logins from one address that wait for the check of their password or token. The"
        " broker checks logins from each address in turn. An IPv6 address is counted as its /64 network. Not a setting"
        " of Kafka.",
    )
    scram_max_users: int = integer(
        100000,
        at_least(0),
        doc="The maximum number of users with SCRAM credentials, which are all kept in memory. Credentials of further"
        " users are refused with POLICY_VIOLATION.",
    )
    plain_sasl_jaas_config: str = password(
        doc="The users of PLAIN, in the form of a Java login module:"
        ' `PlainLoginModule required user_NAME="PASSWORD" ...;` with one such pair for each user.'
        " Kafka has this setting only with the prefix listener.name.<listener>.",
        per_listener=True,
    )
    plain_users_location: str = text(
        "",
        doc="The file with the users of PLAIN. Each line consists of a name, a colon and a salted hash of the password;"
        " `oncelog user hash NAME` prints such a line. The broker reads the file again when it changes.",
        per_listener=True,
    )
