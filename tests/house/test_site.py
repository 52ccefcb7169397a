"""The documentation site builds without a warning, and its reference has every public name."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference" / "api"
PUBLIC = ["oncelog", "oncelog.sync", "oncelog.connect", "oncelog.pipeline"]


@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra: pip install 'oncelog[site]'")
    done = subprocess.run(  # not --quiet: it drops the warnings before --strict counts them
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "reference" / "api" / "producer" / "index.html").exists()
    # A table needs an empty line before it; without one, the page shows its rule as text.
    pages = {page.relative_to(tmp_path): page.read_text() for page in tmp_path.rglob("index.html")}
    assert [str(name) for name, page in pages.items() if re.search(r"^\|[ :-]*---|<p>\|", page, re.M)] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    documented = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", pages, re.MULTILINE)
    public = set(import_module(module).__all__)
    names = {name for name in public if not inspect.ismodule(getattr(import_module(module), name))}
    missing = names - set(documented)
    assert not missing, f"add `::: {module}.NAME` to a page of docs/reference/api/ for {', '.join(sorted(missing))}"
    assert len(documented) == len(set(documented)), "a name has two entries"
    assert set(documented) <= public, "a name in the reference is not public"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_says_what_it_is(module: str) -> None:
    assert not list(_undocumented(module)), "public names without a docstring"


def _undocumented(module: str) -> Iterator[str]:
    """Yield the classes and functions of a module, and the methods of its classes, that have no docstring."""
    package = import_module(module)
    for name in package.__all__:
        value = getattr(package, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not value.__doc__:
            yield name
        if inspect.isclass(value) and (value.__module__ or "").startswith("oncelog"):
            for member, attribute in vars(value).items():
                function = getattr(attribute, "fget", None) or getattr(attribute, "__func__", attribute)
                if not member.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(function):
                    yield f"{name}.{member}"
