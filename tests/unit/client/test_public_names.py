"""`import oncelog` is cheap, and every public name is there."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import oncelog
import pytest


@pytest.mark.parametrize("name", oncelog.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(oncelog, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Produser"):
        _ = oncelog.Produser  # type: ignore[attr-defined]


def test_importing_the_package_imports_neither_broker_nor_client() -> None:
    code = "import sys, oncelog; print(sorted(n for n in sys.modules if n.startswith('oncelog.') or n == 'asyncio'))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "['oncelog.version']\n"


def test_the_producer_does_not_import_the_broker() -> None:
    code = "import sys, oncelog; oncelog.Producer; print([n for n in sys.modules if n.startswith('oncelog.broker')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_dir_lists_the_public_names_alone() -> None:
    assert dir(oncelog) == sorted(oncelog.__all__)


def public_classes() -> list[type]:
    values = [getattr(oncelog, name) for name in oncelog.__all__]
    return [value for value in values if isinstance(value, type) and value.__module__.startswith("oncelog.client.")]


def names_in(annotation: object) -> set[str]:
    return set(re.findall(r"(?<![\w.])[A-Z]\w*", str(annotation)))


def ours(module: ModuleType, name: str) -> bool:
    """Whether a name that an annotation of a module uses is one of this package's own."""
    source = getattr(module, "__file__", "") or ""
    if name in vars(module):
        value = vars(module)[name]
        if isinstance(value, type):
            return value.__module__.startswith("oncelog.")
        return (
            not isinstance(value, TypeVar)
            and getattr(value, "__module__", "oncelog").startswith(("oncelog", "typing."))
            and name not in vars(typing)
            and name not in vars(collections.abc)
        )
    tree = ast.parse(Path(source).read_text())  # imported for type checkers only
    return any(
        isinstance(node, ast.ImportFrom) and node.level > 0 and any(alias.name == name for alias in node.names)
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__name__)
def test_every_type_of_a_public_signature_can_be_imported(kind: type) -> None:
    missing = set()
    for name, member in inspect.getmembers(kind):
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(function) or not function.__module__.startswith("oncelog."):
            continue
        module = sys.modules[function.__module__]
        for annotation in function.__annotations__.values():
            missing |= {one for one in names_in(annotation) if one not in oncelog.__all__ and ours(module, one)}
    assert not missing


CLIENTS: dict[str, tuple[Callable[[], object], set[str]]] = {
    "Producer": (lambda: oncelog.Producer(transactional_id="x"), {"config"}),
    "Consumer": (lambda: oncelog.Consumer(group_id="g"), {"config"}),
    "Admin": (oncelog.Admin, {"config"}),
    "TransactionalProducerPool": (lambda: oncelog.TransactionalProducerPool(prefix="p"), set()),
    "Processor": (
        lambda: oncelog.Processor(group_id="g", transactional_id="x", topics=["t"], transform=lambda _: None),
        {"metrics"},
    ),
}
"""How each client is made, and its public attributes beside methods and properties."""


@pytest.mark.parametrize("name", CLIENTS)
def test_the_parts_of_a_client_are_not_public(name: str) -> None:
    make, attributes = CLIENTS[name]
    client = make()
    assert {one for one in vars(client) if not one.startswith("_")} == attributes
    members = {one: member for one, member in inspect.getmembers(type(client)) if not one.startswith("_")}
    assert not [one for one, member in members.items() if not inspect.getdoc(member)]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_pool_and_processor_have_no_other_public_names() -> None:
    assert public(oncelog.TransactionalProducerPool) == {"close", "producer", "start", "status", "take", "transaction"}
    assert public(oncelog.Processor) == {"run", "run_processes", "stop"}
