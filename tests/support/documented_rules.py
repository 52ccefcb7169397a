"""The access rules that a page of the documentation tells users to add."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from oncelog import Acl
from oncelog.cli.acl import add

DOCS = Path(__file__).resolve().parents[2] / "docs"


def documented_commands(page: str, principal: str) -> list[list[str]]:
    """Return the arguments of each `oncelog acl add` of a page that names this principal."""
    text = (DOCS / page).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^oncelog acl add .*", text, re.MULTILINE)
    commands = [shlex.split(line)[1:] for line in lines]
    return [words for words in commands if principal in words]


def documented_rules(page: str, principal: str) -> list[Acl]:
    """Return the rules that these commands add."""
    rules = []
    for words in documented_commands(page, principal):
        given = add.make_context("add", words[2:]).params
        kind, name = next((kind, given[kind]) for kind in ("topic", "group", "transactional_id") if given[kind])
        rules += [Acl(kind.upper(), name, principal, operation) for operation in given["operations"]]
    assert rules, f"{page} has no rules of {principal}"
    return rules
