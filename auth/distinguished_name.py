"""Turn the subject of a certificate into a principal's name, by Kafka's rules (`ssl.principal.mapping.rules`, KIP-371).

The name of a subject is the string that Java writes for it (RFC 2253), for example `CN=alice,OU=billing,O=Acme,C=DE`.
Rules shorten this name. A rule is `RULE:pattern/replacement/`, with L or U at the end for lower or upper case, or it is
`DEFAULT`, which keeps the whole name. The first rule whose pattern matches the whole name applies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

Subject: TypeAlias = Sequence[Sequence[tuple[str, str]]]
"""A subject as `ssl.SSLSocket.getpeercert` returns it: relative distinguished names, each with its (attribute, value)
pairs.
"""

_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_UTF8, _PRINTABLE, _IA5 = 0x0C, 0x13, 0x16
_NUMBERS: Final = {
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5),
    "generationQualifier": ("2.5.4.44", _UTF8),
    "givenName": ("2.5.4.42", _UTF8),
    "initials": ("2.5.4.43", _UTF8),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "surname": ("2.5.4.4", _UTF8),
    "title": ("2.5.4.12", _UTF8),
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "pseudonym": ("2.5.4.65", _UTF8),
}
"""The object identifiers of attributes for which RFC 2253 has no keyword, and the usual ASN.1 type of their values."""

_SPECIAL: Final = re.compile(r'([,=+"\\<>;])')
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP: Final = re.compile(r"\\(.)|\$(\d)", re.DOTALL)


def name_of(subject: Subject) -> str:
    """Return a subject as text, in the form of RFC 2253; "" for an empty subject."""
    return ",".join("+".join(_attribute(*pair) for pair in relative) for relative in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    if (keyword := _KEYWORDS.get(kind)) is not None:
        return f"{keyword}={_escaped(value)}"
    number, tag = _NUMBERS.get(kind, (kind, _UTF8))
    content = value.encode()
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x80 + (size.bit_length() + 7) // 8]) + _big(size)
    return f"{number}=#{(bytes([tag]) + length + content).hex()}"


def _big(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if len(value) > 1 and value[-1] == " " else text


class PrincipalRules:
    """The rules by which a listener turns the subjects of clients' certificates into names of principals."""

    def __init__(self, text: str) -> None:
        """Read `ssl.principal.mapping.rules`; an empty string means `DEFAULT`. Raises ValueError."""
        self._rules: list[tuple[re.Pattern[str] | None, str, str]] = []
        text = text.strip() or "DEFAULT"
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ValueError(
                    f"has {text[position:]!r}, which is not a rule. Write RULE:pattern/replacement/ or DEFAULT"
                )
            default, pattern, replacement, case = found.groups()
            if default:
                self._rules.append((None, "", ""))
            else:
                self._rules.append((_compiled(pattern), _GROUP.sub(_of_python, replacement), case))
            position = found.end()

    def apply(self, name: str) -> str | None:
        """Return the principal's name for a subject with this `name`, or None if no rule matches."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return name
            if (found := pattern.fullmatch(name)) is not None:
                shortened = found.expand(replacement)
                return {"L": shortened.lower(), "U": shortened.upper()}.get(case, shortened)
        return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"has the pattern {pattern!r}, which is not a regular expression: {error}") from None


def _of_python(found: re.Match[str]) -> str:
    """Translate a group (`$1`) or an escaped character in a replacement from Java's form to Python's."""
    literal, group = found.groups()
    if group is not None:
        return f"\\g<{group}>"
    return "\\\\" if literal == "\\" else str(literal)


def rules_problem(text: str) -> str | None:
    """Return why `ssl.principal.mapping.rules` cannot have this value, or None if it can."""
    try:
        PrincipalRules(text)
    except ValueError as error:
        return str(error)
    return None
