"""Every code block of docs/ runs, or the page says in a comment why it does not."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import PYTHON, SHELL, Block, PageRun, blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {str(page.relative_to(DOCS)): blocks(page.read_text(encoding="utf-8")) for page in sorted(DOCS.rglob("*.md"))}

pytestmark = pytest.mark.oncelog_only(reason="pages are read beside a broker of their own")


@pytest.mark.parametrize("page", [name for name, found in PAGES.items() if any(block.runs for block in found)])
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    with PageRun(page, tmp_path) as run:
        for block in PAGES[page]:
            run.run(block)


def test_every_block_names_its_language() -> None:
    known = {PYTHON, *SHELL, "json", "properties", "text", "toml", "yaml"}
    unknown = [
        f"{page}:{block.line}" for page, found in PAGES.items() for block in found if block.language not in known
    ]
    assert not unknown


def test_every_toml_block_can_be_read() -> None:
    for where, block in every_block():
        if block.language == "toml":
            assert tomllib.loads(block.code), where


def test_a_block_that_does_not_run_says_why() -> None:
    skipped = [(where, block.reason) for where, block in every_block() if block.comment.startswith("not run")]
    assert not [where for where, reason in skipped if len(reason.split()) < 3]


def every_block() -> Iterator[tuple[str, Block]]:
    for page, found in PAGES.items():
        for block in found:
            yield f"{page}:{block.line}", block


class TestPagesAreRunAsTheyStand:
    def test_python_that_fails_is_noticed(self, tmp_path: Path) -> None:
        (block,) = blocks("```python\nraise ValueError(1)\n```\n")
        with PageRun("page", tmp_path) as run, pytest.raises(ValueError, match="1"):
            run.run(block)

    def test_output_that_differs_is_noticed(self, tmp_path: Path) -> None:
        text = "```python\nprint(1)\n```\n\nprints:\n<!-- prints -->\n```text\n2\n```\n"
        first, second = blocks(text)
        with PageRun("page", tmp_path) as run:
            run.run(first)
            with pytest.raises(AssertionError, match="page:8"):
                run.run(second)

    def test_a_command_that_fails_is_noticed(self, tmp_path: Path) -> None:
        (block,) = blocks("```console\nfalse\ntrue\n```\n")
        with PageRun("page", tmp_path) as run, pytest.raises(AssertionError, match="page:2"):
            run.run(block)

    def test_a_command_that_should_fail_has_to_fail_as_it_says(self, tmp_path: Path) -> None:
        with PageRun("page", tmp_path) as run:
            run.run(blocks("<!-- fails: refused -->\n```console\necho refused; exit 1\n```\n")[0])
            for command in ("echo refused", "echo refused; exit 2", "exit 1"):
                with pytest.raises(AssertionError, match="page:3"):
                    run.run(blocks(f"<!-- fails: refused -->\n```console\n{command}\n```\n")[0])

    def test_files_are_there_for_the_next_block_and_hidden_code_runs(self, tmp_path: Path) -> None:
        text = (
            "=== tab\n\n    <!-- file: one_of_a_page.py -->\n    ```python\n    number = 1\n    ```\n\n"
            "```python\nimport asyncio\nawait asyncio.sleep(0)\nfrom one_of_a_page import number\n```\n"
            "<!-- then:\nassert number == 1\nnumber = 2\n-->\n"
            "<!-- not run: it would fail here -->\n```python\nraise\n```\n"
        )
        with PageRun("page", tmp_path) as run:
            for block in blocks(text):
                run.run(block)
            run.run(blocks("<!-- then: assert number == 2 -->\n")[0])
