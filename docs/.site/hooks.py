"""MkDocs hooks: the site's pages that are not in docs/, and the source of the API reference.

The repository root is the package, but it also contains files that are not shipped, such as the tests and the virtual
environment. Therefore, the API reference is read from `.build/site-source/oncelog`, which has symbolic links to the
shipped parts only.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / ".build" / "site-source"
PAGES_OF_THE_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")


def on_startup(**_: object) -> None:
    """Create `.build/site-source/oncelog` for the API reference, before anything reads it."""
    package = SOURCE / "oncelog"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = {name.split(".")[1] for name in listed if "." in name}
    for name in ["__init__.py", "py.typed", *sorted(folders)]:
        (package / name).symlink_to(ROOT / name)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages in the repository's root and the page of the examples. Make their links relative to docs/."""
    for name in PAGES_OF_THE_ROOT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        for page in PAGES_OF_THE_ROOT:
            text = text.replace(f"]({page}", f"]({page.lower()}")
        text = re.sub(r"\[([^\]]*)\]\((LICENSE)\)", r"\1", text)
        files.append(File.generated(config, name.lower(), content=text))
    files.append(File.generated(config, "examples.md", content=_examples()))
    return files


def _examples() -> str:
    """Return the page of the programs in examples/: their README, followed by each program."""
    folder = ROOT / "examples"
    text = (folder / "README.md").read_text(encoding="utf-8").replace("](../docs/", "](")
    text = re.sub(r"\]\((\w+)\.(py|toml)\)", r"](#\1)", text)
    text = re.sub(r"\[([^\]]+)\]\([^)#]+\.ipynb\)", r"`\1`", text)
    for program in sorted([*folder.glob("*.py"), *folder.glob("*.toml")]):
        language = {".py": "python", ".toml": "toml"}[program.suffix]
        code = program.read_text(encoding="utf-8").rstrip()
        text += f"\n## {program.name} {{ #{program.stem} }}\n\n```{language}\n{code}\n```\n"
    return text
