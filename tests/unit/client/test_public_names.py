"""`import oncelog` is cheap, and every public name is there."""

from __future__ import annotations

import subprocess
import sys

import oncelog
import pytest


@pytest.mark.parametrize("name", oncelog.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(oncelog, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Produser"):
        _ = oncelog.Produser


def test_importing_the_package_imports_neither_broker_nor_client() -> None:
    code = (
        "import sys, oncelog; print([name for name in sys.modules if name.startswith('oncelog.') or name == 'asyncio'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_producer_does_not_import_the_broker() -> None:
    code = "import sys, oncelog; oncelog.Producer; print([n for n in sys.modules if n.startswith('oncelog.broker')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
