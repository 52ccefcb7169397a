"""Read users with SCRAM credentials from text: `NAME:HASH`, or the form of Kafka's `kafka-storage.sh --add-scram`."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from .password_hash import PasswordHash
from .scram_credentials import MIN_ITERATIONS, SCRAM_MECHANISMS, ScramCredential

_KAFKA: Final = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)
_PART: Final = re.compile(r'\s*(name|password|salt|iterations|saltedpassword)=(?:"([^"]*)"|([^,]*))\s*(?:,|$)')


def parse_scram_user(text: str) -> tuple[str, PasswordHash]:
    """Return the user's name and hash. Raises ValueError, whose message does not quote the text.

    Kafka's form is `SCRAM-SHA-256=[name=alice,password=secret]`, with the optional parts salt (base64), iterations, and
    saltedpassword (base64) in place of the password.
    """
    if (kafka := _KAFKA.fullmatch(text.strip())) is not None:
        return _of_kafkas_form(*kafka.groups())
    name, colon, hashed = text.strip().rpartition(":SCRAM-")
    if not (name and colon):
        raise ValueError("is not a user. Write NAME:HASH, which `oncelog user hash NAME` prints")
    return name, PasswordHash.parse(f"SCRAM-{hashed}")


def _of_kafkas_form(mechanism_name: str, inside: str) -> tuple[str, PasswordHash]:
    parts: dict[str, str] = {}
    position = 0
    while position < len(inside):
        part = _PART.match(inside, position)
        if part is None or part[1] in parts:
            raise ValueError(
                "has an unknown or repeated part. The parts are name, password, salt, iterations and saltedpassword"
            )
        parts[part[1]] = part[2] if part[2] is not None else part[3]
        position = part.end()
    mechanism = SCRAM_MECHANISMS[mechanism_name]
    if not parts.get("name") or ("password" in parts) == ("saltedpassword" in parts):
        raise ValueError("needs a name, and either a password or a saltedpassword")
    try:
        salt = base64.b64decode(parts["salt"], validate=True) if "salt" in parts else None
        salted = base64.b64decode(parts.get("saltedpassword", ""), validate=True)
        iterations = int(parts.get("iterations", MIN_ITERATIONS))
    except (ValueError, binascii.Error):
        raise ValueError("has a salt or saltedpassword that is not base64, or invalid iterations") from None
    if not salted:
        made = ScramCredential.of_password(mechanism, parts.get("password", ""), salt=salt, iterations=iterations)
        return parts["name"], PasswordHash(mechanism, made)
    if salt is None:
        raise ValueError("has a saltedpassword without its salt")
    made = ScramCredential.of_salted_password(mechanism, salted, salt=salt, iterations=iterations)
    return parts["name"], PasswordHash(mechanism, made)
