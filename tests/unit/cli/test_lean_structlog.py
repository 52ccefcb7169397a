"""structlog without rich, tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("lean", "with_rich"), [(False, True), (True, False)])
def test_a_broker_process_does_not_load_rich(lean: bool, with_rich: bool) -> None:
    code = "import sys; from oncelog.cli.lean_structlog import import_structlog_without_rich as lean;"
    code += "lean();" if lean else ""
    code += "import oncelog.broker.node; print('structlog' in sys.modules, 'rich' in sys.modules)"
    assert printed(code) == f"True {with_rich}"


def test_rich_can_be_imported_afterwards() -> None:
    code = "from oncelog.cli.lean_structlog import import_structlog_without_rich as lean; lean(); lean();"
    assert printed(code + "import rich.table; print(rich.table.Table().title)") == "None"
