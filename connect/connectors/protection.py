"""Refuses settings that request TLS or SASL from a connector that does not have these settings.

Other unknown settings are ignored, as in Kafka Connect. But an operator who sets `database.sslrootcert`, a setting of
Debezium, relies on a verified certificate, so this setting must not be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from ..config import ConfigValue
from ..config.protection import HIDDEN, asks_for_protection
from ..errors import ConfigValueError

_ASKS_FOR_PROTECTION: Final = re.compile(r"ssl|sasl|tls", re.IGNORECASE)
_OF_OTHER_PARTS: Final = (
    "producer.override.",
    "consumer.override.",
    "admin.override.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "transforms.",
    "predicates.",
    "topic.creation.",
)


def unsupported_protection(
    config: Mapping[str, str | None], known: Collection[str], remedy: str
) -> Iterator[ConfigValue]:
    """Yield a result with an error for each setting that requests protection and is not in `known`.

    Only settings with ssl, sasl or tls in their names are checked, except those of clients, converters and transforms.

    `remedy` says how the connection to the source is protected instead.
    """
    for name, value in config.items():
        if (
            _ASKS_FOR_PROTECTION.search(name)
            and name not in known
            and not name.startswith(_OF_OTHER_PARTS)
            and asks_for_protection(value or "")
        ):
            problem = f"is not a setting of this connector. Remove it, and {remedy}"
            yield ConfigValue(name, errors=[str(ConfigValueError(name, HIDDEN, problem))])
