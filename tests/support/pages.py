"""Run the code blocks of a documentation page, in order and in one directory, beside a broker.

A comment in front of a block says what is special about it:

- `<!-- not run: REASON -->`: the block does not run, for this reason;
- `<!-- file: NAME -->`: the block is the content of a file, which other blocks use;
- `<!-- prints -->`: the block is the output of the block before it;
- `<!-- fails: TEXT -->`: the last command of a shell block fails with exit code 1 and prints TEXT.

A comment `<!-- then: CODE -->` is Python code that runs next and that readers do not see. The Python blocks of a page
share their names, and may use `await` outside of functions. Shell blocks run in `bash -e`. The first block that needs a
broker starts it. The broker's address replaces 127.0.0.1:9092 in blocks and files, and commands find it in
`$ONCELOG_BOOTSTRAP`. A free port replaces that of a Connect worker, 127.0.0.1:8083. The address of a schema
registry replaces 127.0.0.1:8081.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from oncelog.demo.processes import free_port

from .broker import BrokerProcess
from .fake_schema_registry import FakeSchemaRegistry

ADDRESS = "127.0.0.1:9092"
WORKER = "127.0.0.1:8083"
REGISTRY = "127.0.0.1:8081"
PYTHON, SHELL = "python", ("console", "sh")
_PIECE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$|^ *<!--(?P<comment>.*?)-->$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A code block: where it is, what it is, and the comment in front of it."""

    line: int
    language: str
    code: str
    comment: str

    @property
    def file(self) -> str:
        return self._of_comment("file")

    @property
    def reason(self) -> str:
        """Why the block does not run, or an empty text if it runs."""
        return self._of_comment("not run")

    @property
    def failure(self) -> str:
        """What the block prints when it fails, or an empty text if it must not fail."""
        return self._of_comment("fails")

    @property
    def output(self) -> bool:
        return self.comment == "prints"

    @property
    def runs(self) -> bool:
        return self.language in (PYTHON, *SHELL) and not self.reason and not self.file

    def _of_comment(self, word: str) -> str:
        before, colon, rest = self.comment.partition(":")
        return rest.strip() if colon and before == word else ""


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page, with hidden ones, in their order."""
    found: list[Block] = []
    comment, comment_end = "", -1
    for piece in _PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 2
        if piece["comment"] is not None:
            comment, comment_end = piece["comment"].strip(), piece.end()
            if comment.startswith("then:"):
                found.append(Block(line, PYTHON, dedent(comment.removeprefix("then:")), ""))
                comment = ""
            continue
        in_front = comment if not text[comment_end : piece.start()].strip() else ""
        found.append(Block(line, piece["language"], dedent(piece["code"]), in_front))
        comment = ""
    return found


class PageRun(contextlib.ExitStack):
    """A run of blocks in a directory. Raises AssertionError for a command that fails and for output that differs."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__()
        self._name = name
        self._directory = directory
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._broker: BrokerProcess | None = None
        self._worker = f"127.0.0.1:{free_port()}"
        self._printed = ""
        sys.path.insert(0, str(directory))
        self.callback(self._forget_modules)

    def run(self, block: Block) -> None:
        code = block.code.replace(WORKER, self._worker)
        if REGISTRY in code:
            registry = self.enter_context(FakeSchemaRegistry())
            code = code.replace(f"http://{REGISTRY}", registry.url)
        if ADDRESS in code or (block.language in SHELL and re.search(r"\boncelog\b|\bpython\b", code)):
            code = code.replace(ADDRESS, self._address())
        if block.file:
            (self._directory / block.file).write_text(code, encoding="utf-8")
        elif block.output:
            expected = code.replace(ADDRESS, self._address()) if ADDRESS in code else code
            where = f"{self._name}:{block.line}"
            assert self._printed == expected, f"{where} does not show what is printed:\n{self._printed}"
        elif block.runs:
            self._printed = self._python(block, code) if block.language == PYTHON else self._shell(block, code)

    def _forget_modules(self) -> None:
        sys.path.remove(str(self._directory))
        for file in self._directory.glob("*.py"):
            sys.modules.pop(file.stem, None)

    def _address(self) -> str:
        if self._broker is None:
            self._broker = self.enter_context(BrokerProcess(self._directory / "broker"))
        return self._broker.address

    def _python(self, block: Block, code: str) -> str:
        source = "\n" * (block.line - 1) + code
        program = compile(source, self._name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        with contextlib.chdir(self._directory), contextlib.redirect_stdout(io.StringIO()) as printed:
            if program.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(program, self._names))
            else:
                exec(program, self._names)
        return printed.getvalue()

    def _shell(self, block: Block, code: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", code],
            cwd=self._directory,
            env={
                "HOME": str(self._directory),
                "ONCELOG_BOOTSTRAP": self._address(),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as in a terminal
            text=True,
            timeout=60,
            check=False,
        )
        found = f"{self._name}:{block.line}, exit code {done.returncode}\n{done.stdout[-3000:]}"
        assert done.returncode == (1 if block.failure else 0), found
        assert block.failure in done.stdout, found
        return done.stdout
