"""The README of examples/ and the headers of the programs."""

from __future__ import annotations

import ast
import re

from support.example_programs import EXAMPLES, notebook_source

PROGRAMS = sorted(path for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb", ".toml"})


def header_of(text: str, suffix: str) -> str:
    """Return the docstring of a program, or the comment at the top of a job file."""
    if suffix == ".toml":
        return re.sub(r"^# ?", "", text.split("\n\n")[0], flags=re.MULTILINE)
    return ast.get_docstring(ast.parse(text)) or ""


def test_the_readme_lists_every_program() -> None:
    listed = re.findall(r"^\| \[(\S+)\]\(\1\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == [path.name for path in PROGRAMS]


def test_each_program_is_short_and_says_how_to_run_it() -> None:
    for path in PROGRAMS:
        if path.suffix == ".ipynb":
            assert len(notebook_source(path).splitlines()) < 80
            continue
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 80, path.name
        header = header_of(text, path.suffix)
        assert re.search(r"^Shows   \w", header, re.MULTILINE), path.name
        assert re.search(rf"^Run     (.*\n)+?.*{path.stem}", header, re.MULTILINE), path.name


def test_programs_import_public_names_only() -> None:
    for path in PROGRAMS:
        if path.suffix == ".toml":
            continue
        text = notebook_source(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
        modules = {
            node.module or ""
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "oncelog"
        }
        assert modules, path.name
        assert modules <= {"oncelog", "oncelog.sync", "oncelog.pipeline"}, path.name
