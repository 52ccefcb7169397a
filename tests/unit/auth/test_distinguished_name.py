"""The names of certificates' subjects, as Java writes them, and the rules that shorten them."""

from __future__ import annotations

import pytest
from oncelog.auth.distinguished_name import PrincipalRules, name_of

ALICE = "CN=alice,OU=billing,O=Acme,C=DE"


def test_a_subject_is_written_as_in_java() -> None:
    subject = (
        (("countryName", "DE"),),
        (("stateOrProvinceName", "Bärn "),),
        (("localityName", "#L"),),
        (("organizationName", 'A, "B" <c>;+\\ =x'),),
        (("organizationalUnitName", "u1"), ("userId", "uid1")),
        (("serialNumber", "77"),),
        (("givenName", "Gi"),),
        (("emailAddress", "a@b.c"),),
        (("1.2.3.4", "x" * 200),),
        (("commonName", " alice"),),
    )
    assert name_of(subject) == (
        "CN=\\ alice,1.2.3.4=#0c81c8" + "78" * 200 + ",1.2.840.113549.1.9.1=#16056140622e63,2.5.4.42=#0c024769,"
        '2.5.4.5=#13023737,OU=u1+UID=uid1,O=A\\, \\"B\\" \\<c\\>\\;\\+\\\\ \\=x,L=\\#L,ST=Bärn\\ ,C=DE'
    )
    assert name_of(()) == ""


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("", ALICE, ALICE),
        ("DEFAULT", ALICE, ALICE),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", ALICE, "alice@billing"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", ALICE, "ALICE@BILLING"),
        ("RULE:CN=(\\w+),.*/X-$1/L , DEFAULT", ALICE, "x-alice"),
        ("RULE:CN=bob,.*/bob/,RULE:CN=a.*/the a/,DEFAULT", ALICE, "the a"),
        ("RULE:CN=bob,.*/bob/,DEFAULT", ALICE, ALICE),
        ("RULE:CN=bob,.*/bob/", ALICE, None),
        ("RULE:alice/x/", ALICE, None),
        (r"RULE:CN=(.*)\/(.*)/$1\/$2\$\\/", "CN=a/b", "a/b$\\"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_applies(rules: str, name: str, principal: str | None) -> None:
    assert PrincipalRules(rules).apply(name) == principal


@pytest.mark.parametrize("rules", ["RULE:x", "RULE:x/y", "RULE:x/y/Q", "NONE", "DEFAULT;DEFAULT", "RULE:(/x/"])
def test_other_texts_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"is not a rule\. Write|is not a regular expression"):
        PrincipalRules(rules)
