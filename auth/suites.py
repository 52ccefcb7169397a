"""Translate the versions and cipher suites of TLS from Kafka's settings to OpenSSL's."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The supported versions by Kafka's names."""

TLS13_SUITES: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
"""The suites of TLS 1.3 that Python offers, which are those of OpenSSL's defaults."""

_NOT_OFFERED: Final = frozenset({"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"})
"""The other suites of TLS 1.3 (RFC 8446)."""

_SEPARATOR: Final = re.compile("[:,; ]+")
"""Separates the names in a cipher string of OpenSSL."""


class SuitesError(ValueError):
    """The given versions or cipher suites of TLS cannot be used. `setting` is the name of the setting to change."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(problem)
        self.setting = setting


def restrict(context: ssl.SSLContext, suites: Sequence[str], versions: Sequence[str]) -> None:
    """Limit a context to the `suites`, by their standard names or OpenSSL's, and to the `versions` of TLS.

    A suite may also be a cipher string of OpenSSL, such as HIGH:!aNULL.

    Without `suites`, OpenSSL's defaults apply. If all `suites` belong to one version of TLS, the other version is
    excluded. Python's `ssl` cannot choose among the suites of TLS 1.3. So `suites` must contain all or none of them if
    `versions` include TLS 1.3. Raises SuitesError.
    """
    allowed = {VERSIONS[version] for version in versions}
    if not allowed:
        raise SuitesError("ssl.enabled.protocols", f"is empty. Use {', '.join(VERSIONS)}")
    names = [name for suite in suites for name in _SEPARATOR.split(suite) if name]
    newer = TLS13_SUITES.intersection(names)
    older = [name for name in names if name not in TLS13_SUITES]
    if names:
        _check_names(context, older)
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
        try:
            context.set_ciphers(":".join(map(openssl_name, older)))
        except ssl.SSLError:
            raise SuitesError(
                "ssl.cipher.suites", f"OpenSSL finds no suite for {':'.join(older)}. `openssl ciphers` lists its suites"
            ) from None


def _check_names(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Raise SuitesError if a suite cannot be enabled.

    OpenSSL itself ignores an unknown suite, as long as it knows another suite in the list. The check changes the suites
    of `context`.
    """
    if other := sorted(_NOT_OFFERED.intersection(names)):
        raise SuitesError(
            "ssl.cipher.suites",
            f"names {', '.join(other)}, which Python cannot offer. Of the suites of TLS 1.3, it offers"
            f" {', '.join(sorted(TLS13_SUITES))}",
        )
    # A name after an operator only excludes or moves suites, so OpenSSL need not have it.
    if unknown := [name for name in names if name[0] not in "!-+@" and not _is_known(context, name)]:
        raise SuitesError(
            "ssl.cipher.suites",
            f"OpenSSL does not have {', '.join(unknown)}. `openssl ciphers` lists the suites that it has",
        )


def _is_known(context: ssl.SSLContext, name: str) -> bool:
    try:
        context.set_ciphers(openssl_name(name))
    except ssl.SSLError:
        return False
    return True


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA → ECDHE-RSA-AES128-SHA."""
    exchange, with_cipher, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not with_cipher:
        return suite  # OpenSSL's name
    cipher = re.sub("^(AES|ARIA|CAMELLIA)_", r"\1", cipher).replace("_CBC_", "_").replace("CCM_8", "CCM8")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("_SHA256")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")
