"""examples/test_orders.py: its tests pass, and fail when the code under test is broken."""

from __future__ import annotations

from pathlib import Path

from support.example_programs import EXAMPLES, run

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")


def test_the_tests_pass(tmp_path: Path) -> None:
    output = run("", tmp_path, *PYTEST, str(EXAMPLES / "test_orders.py"))
    assert output[-1].startswith("2 passed"), output


def test_they_fail_when_half_an_order_is_written(tmp_path: Path) -> None:
    text = (EXAMPLES / "test_orders.py").read_text()
    raised = 'raise ValueError(f"{customer}\'s order has an item without a name")'
    assert raised in text
    (tmp_path / "test_broken.py").write_text(text.replace(raised, "continue"))
    output = run("", tmp_path, *PYTEST, "test_broken.py", code=1)
    assert output[-1].startswith("1 failed, 1 passed"), output
