"""Translate the versions and cipher suites of TLS from Kafka's settings to OpenSSL's."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The supported versions by Kafka's names."""

TLS13_SUITES: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class SuitesError(ValueError):
    """The given versions or cipher suites of TLS cannot be used. `setting` is the name of the setting to change."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(problem)
        self.setting = setting


def restrict(context: ssl.SSLContext, suites: Sequence[str], versions: Sequence[str]) -> None:
    """Limit a context to the `suites`, by their standard names or OpenSSL's, and to the `versions` of TLS.

    Without `suites`, OpenSSL's defaults apply. If all `suites` belong to one version of TLS, the other version is
    excluded. Python's `ssl` cannot choose among the suites of TLS 1.3. So `suites` must contain all or none of them if
    `versions` include TLS 1.3. Raises SuitesError.
    """
    allowed = {VERSIONS[version] for version in versions}
    if not allowed:
        raise SuitesError("ssl.enabled.protocols", f"is empty. Use {', '.join(VERSIONS)}")
    newer = TLS13_SUITES.intersection(suites)
    older = [suite for suite in suites if suite not in TLS13_SUITES]
    if suites:
        if newer and newer != TLS13_SUITES and ssl.TLSVersion.TLSv1_3 in allowed:
            raise SuitesError(
                "ssl.cipher.suites",
                "names only some suites of TLS 1.3. Python offers them only together: name"
                f" {', '.join(sorted(TLS13_SUITES))}, or none of them",
            )
        if not newer:
            allowed.discard(ssl.TLSVersion.TLSv1_3)
        if not older:
            allowed.discard(ssl.TLSVersion.TLSv1_2)
        if not allowed:
            raise SuitesError(
                "ssl.cipher.suites", "has no suite for the versions in ssl.enabled.protocols. Add a suite or a version"
            )
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    if older:
        names = ":".join(map(openssl_name, older))
        try:
            context.set_ciphers(names)
        except ssl.SSLError:
            raise SuitesError(
                "ssl.cipher.suites", f"OpenSSL has none of the suites {names}. `openssl ciphers` lists those it has"
            ) from None


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA → ECDHE-RSA-AES128-SHA."""
    exchange, with_cipher, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not with_cipher:
        return suite  # OpenSSL's name
    cipher = cipher.replace("AES_", "AES").replace("_CBC_", "_")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("_SHA256")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")
