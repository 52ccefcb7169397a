"""Cipher suites of a setting: each one is enabled, or the setting is refused with the names that cannot be."""

from __future__ import annotations

import ssl

import pytest
from oncelog.auth.suites import TLS13_SUITES, VERSIONS, SuitesError, openssl_name, restrict

KNOWN = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


def restricted(*suites: str, versions: tuple[str, ...] = tuple(VERSIONS)) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, suites, versions)
    return context


def enabled(context: ssl.SSLContext) -> set[str]:
    return {each["name"] for each in context.get_ciphers()} - TLS13_SUITES


def test_suites_of_both_names_are_enabled() -> None:
    context = restricted(KNOWN, "ECDHE-RSA-AES256-GCM-SHA384", *TLS13_SUITES)
    assert enabled(context) == {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"}
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def test_a_cipher_string_of_openssl_counts_as_names() -> None:
    assert "ECDHE-RSA-AES128-GCM-SHA256" in enabled(restricted("ECDHE+AESGCM:!aNULL:!RC4:@STRENGTH"))
    assert enabled(restricted("ECDHE-RSA-AES256-SHA:" + ":".join(TLS13_SUITES))) == {"ECDHE-RSA-AES256-SHA"}
    assert "AES128-SHA" in enabled(restricted("DEFAULT@SECLEVEL=1", "-CAMELLIA", "+AES128-SHA"))


@pytest.mark.parametrize("beside", [(), (KNOWN,), tuple(TLS13_SUITES)], ids=["alone", "beside another", "TLS 1.3"])
@pytest.mark.parametrize(
    ("suites", "named"),
    [
        (["NONSENSE"], "NONSENSE"),
        (["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA265"], "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA265"),
        (["NONSENSE", "RUBBISH"], "NONSENSE, RUBBISH"),
        (["ECDHE+AESGCM:NONSENSE:!RUBBISH"], "NONSENSE"),
    ],
)
def test_an_unknown_suite_is_refused(beside: tuple[str, ...], suites: list[str], named: str) -> None:
    with pytest.raises(SuitesError) as refused:
        restricted(*beside, *suites)
    assert refused.value.setting == "ssl.cipher.suites"
    assert str(refused.value) == f"OpenSSL does not have {named}. `openssl ciphers` lists the suites that it has"


@pytest.mark.parametrize("versions", [("TLSv1.2",), ("TLSv1.3",), ("TLSv1.2", "TLSv1.3")])
@pytest.mark.parametrize("beside", [(), (KNOWN,), tuple(TLS13_SUITES)], ids=["alone", "beside TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("suite", ["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"])
def test_a_suite_of_tls_1_3_that_python_does_not_offer_is_refused(
    suite: str, beside: tuple[str, ...], versions: tuple[str, ...]
) -> None:
    with pytest.raises(SuitesError, match=rf"names {suite}, which Python cannot offer\. Of the suites of TLS 1\.3"):
        restricted(suite, *beside, versions=versions)


@pytest.mark.parametrize(
    ("standard", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "ECDHE-ECDSA-AES128-CCM"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", "ECDHE-ECDSA-AES256-CCM8"),
        ("TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA256", "DHE-RSA-CAMELLIA128-SHA256"),
        ("ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-SHA"),
    ],
)
def test_a_standard_name_becomes_the_name_of_openssl(standard: str, name: str) -> None:
    assert openssl_name(standard) == name
