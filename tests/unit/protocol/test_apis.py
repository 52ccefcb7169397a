"""The registry of APIs."""

from __future__ import annotations

import subprocess
import sys

from oncelog.protocol import apis
from oncelog.protocol.schema import MessageKind
from support.definitions import message_classes

REQUESTS = {cls.spec.key: cls for cls in message_classes() if cls.spec.kind is MessageKind.REQUEST}


def test_every_request_definition_is_found_by_its_key() -> None:
    assert {cls.spec.key: cls for cls in apis.all_apis()} == REQUESTS
    assert all(apis.request_class(key) is cls for key, cls in REQUESTS.items())


def test_names_are_kafkas() -> None:
    assert apis.api_name(0) == "Produce"
    assert apis.api_name(22) == "InitProducerId"
    assert apis.api_name(4321) == "Unknown(4321)"


def test_an_unknown_key_has_no_class() -> None:
    assert apis.request_class(4321) is None
    assert apis.request_class(-1) is None


def test_request_and_response_belong_together() -> None:
    for cls in apis.all_apis():
        assert cls.response.spec.key == cls.spec.key
        assert cls.response.spec.versions == cls.spec.versions
        assert cls.__name__.removesuffix("Request") == cls.response.__name__.removesuffix("Response")


def test_looking_up_one_api_imports_no_other() -> None:
    program = (
        "import sys; from oncelog.protocol.apis import request_class; request_class(26);"
        "print(sorted(name for name in sys.modules if name.startswith('oncelog.protocol.messages.')))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "['oncelog.protocol.messages.end_txn']"
