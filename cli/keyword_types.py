"""Generate `client/keywords.py` and `broker/keywords.py`, the types of settings given as keyword arguments.

They are generated from the tables of settings. Type checkers and editors use them. At run time, the tables parse and
check the given values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from ..broker.config import BrokerConfig
from ..client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ..settings import Table

_INDENT = " " * 4
_WIDTH = 116

_HEAD = '''"""Types of the {whose} settings as keyword arguments. `make docs` writes this file from {table}."""

from __future__ import annotations

{imports}

'''

_IMPORTS = "from collections.abc import Iterable\nfrom typing import Literal, TypedDict\n"
_CLIENT_IMPORTS = _IMPORTS.replace("from typing", "from ssl import SSLContext\nfrom typing")
_OF_A_POOL = frozenset({"transactional_group_id", "consumer_group_aware_transaction"})
_OF_THE_CONSTRUCTOR = frozenset({"key_serializer", "value_serializer", "key_deserializer", "value_deserializer"})
"""Settings that are parameters of their own, because the type of the client depends on them."""
_OF_A_GROUP = frozenset({"group_id", "group_instance_id", "enable_auto_commit", "isolation_level"})


class _Key(NamedTuple):
    name: str
    type: str
    doc: str


def client_keywords() -> str:
    """Return the source of `client/keywords.py`."""
    common = _keys(ClientConfig)
    named = {one.name for one in common}
    admin, producer, consumer = (
        [one for one in _keys(table) if one.name not in named]
        for table in (AdminConfig, ProducerConfig, ConsumerConfig)
    )
    head = _HEAD.format(
        whose="clients'",
        table="`config.py`",
        imports=f"{_CLIENT_IMPORTS}\nfrom .config import Partitioner, TokenProvider\n",
    )
    return head + "\n\n".join(
        (
            _class("ClientKeywords", "TypedDict", "Settings of every client.", common),
            _class("AdminKeywords", "ClientKeywords", "Settings of `Admin`.", admin),
            _class(
                "SendingKeywords",
                "ClientKeywords",
                "Settings of a producer, without those that make it transactional.",
                [one for one in producer if one.name not in {*_OF_A_POOL, "transactional_id"}],
            ),
            _class(
                "PoolKeywords",
                "SendingKeywords",
                "Settings of the producers of a `TransactionalProducerPool`.",
                [one for one in producer if one.name in _OF_A_POOL],
            ),
            _class(
                "ProducerKeywords",
                "PoolKeywords",
                "Settings of `Producer`.",
                [one for one in producer if one.name == "transactional_id"],
            ),
            _class(
                "ReadingKeywords",
                "ClientKeywords",
                "Settings of a consumer, without those that a `Processor` sets itself.",
                [one for one in consumer if one.name not in _OF_A_GROUP],
            ),
            _class(
                "ConsumerKeywords",
                "ReadingKeywords",
                "Settings of `Consumer`.",
                [one for one in consumer if one.name in _OF_A_GROUP],
            ),
            _class(
                "ProcessorKeywords",
                "SendingKeywords, ReadingKeywords",
                "Settings that a `Processor` passes on to its consumers and producers.",
                [one for one in consumer if one.name == "group_instance_id"],
            ),
        )
    )


def broker_keywords() -> str:
    """Return the source of `broker/keywords.py`."""
    keys = [_Key(row.attribute, row.keyword_type, row.doc) for row in BrokerConfig.rows.values()]
    head = _HEAD.format(
        whose="broker's",
        table="`config.py`",
        imports=_IMPORTS,
    )
    return head + _class("BrokerKeywords", "TypedDict", "Settings of `Broker`.", keys)


def _keys(table: type[Table]) -> list[_Key]:
    keys = [_Key(row.attribute, row.keyword_type, row.doc) for row in table.settings()]
    return [key for key in keys if key.name not in _OF_THE_CONSTRUCTOR]


def _class(name: str, base: str, doc: str, keys: Iterable[_Key]) -> str:
    lines = [f"class {name}({base}, total=False):", f'    """{doc}"""', ""]
    for key in keys:
        lines += [f"    {key.name}: {key.type}", *_docstring(key.doc)]
    return "\n".join(lines) + "\n"


def _docstring(doc: str) -> list[str]:
    quoted = f'"""{doc}"""'
    if len(quoted) <= _WIDTH:
        return [f"    {quoted}"]
    return [*textwrap.wrap(f'"""{doc}', _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT), f'{_INDENT}"""']
