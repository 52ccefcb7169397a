"""Griffe extension that turns docstrings into Markdown.

It links each public name in a docstring to the name's documentation. It also makes signatures for named tuples.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container
from itertools import zip_longest
from pathlib import Path
from textwrap import dedent

from griffe import Attribute, Class, Extension, Function, Object, Parameter, ParameterKind, Parameters

ROOT = Path(__file__).resolve().parents[2]


def _public_names() -> frozenset[str]:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return frozenset(ast.literal_eval(node.value))
    raise LookupError("__init__.py has no __all__")


PUBLIC = _public_names()
_OTHERS = {
    "connect": PUBLIC,
    "pipeline": PUBLIC,
    "sync": frozenset({"Admin", "Broker", "Consumer", "Delivery", "Producer", "Transaction"}),
}
"""Names of `oncelog` that mean something else in the docstrings of a package."""
_NAME = re.compile(r"(?<![\w\[.`])(`?)([A-Z]\w+)(\.\w+)?(\(\))?\1(?![\w\]`])")


def as_markdown(text: str, without_link: Container[str]) -> str:
    """Return a docstring with `::` blocks as Python code, and public names as links, except those in `without_link`."""
    text = re.sub(r"(?<=\w)::\n\n(?= {4})", ":\n\n::\n\n", text)
    parts = re.split(r"(?:^|(?<=\n))::\n\n((?: {4}.*\n?|\n(?= {4}))+)", text)
    prose, code = parts[0::2], parts[1::2]
    linked = [_linked(part, without_link) for part in prose]
    fenced = [f"```python\n{dedent(part).rstrip()}\n```\n" for part in code]
    return "".join(piece for pair in zip_longest(linked, fenced, fillvalue="") for piece in pair)


def _linked(prose: str, without_link: Container[str]) -> str:
    return _NAME.sub(lambda match: _link(match, without_link), prose.replace("``", "`"))


def _link(match: re.Match[str], without_link: Container[str]) -> str:
    quoted, name, member = match[1], match[2], match[3] or ""
    certain = quoted or (name.endswith("Error") and not member) or (name.endswith("Config") and not member)
    if name not in PUBLIC or name in without_link or not certain:
        return match[0]
    return f"[`{name}{member}{match[4] or ''}`][oncelog.{name}{member}]"


class MarkdownDocstrings(Extension):
    """Turns every docstring of the package into Markdown before it is rendered."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        if obj.docstring is not None:
            package = obj.path.split(".")[1:2]
            without_link = _OTHERS.get(package[0] if package else "", frozenset()) | {obj.name}
            obj.docstring.value = as_markdown(obj.docstring.value, without_link)

    def on_class(self, *, cls: Class, **_: object) -> None:
        """Replace a class's private bases with their own bases, and give a named tuple a signature made of its fields.

        Griffe makes such signatures only for dataclasses.
        """
        shown = []
        for base in cls.bases:
            private = str(base).startswith("_") and cls.module.members.get(str(base))
            shown += private.bases if isinstance(private, Class) else [base]
        cls.bases = shown
        if "NamedTuple" in map(str, cls.bases):
            fields = [
                Parameter(
                    member.name,
                    annotation=member.annotation,
                    kind=ParameterKind.positional_or_keyword,
                    default=member.value,
                )
                for member in cls.members.values()
                if isinstance(member, Attribute)
            ]
            cls.set_member("__init__", Function("__init__", parameters=Parameters(*fields)))
