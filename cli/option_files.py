"""Add options for files that environment variables may name instead. Those are checked only when they are used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from .environment import Variable

F = TypeVar("F", bound=Callable[..., Any])

_EXISTING: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


class OptionFile(NamedTuple):
    """The file that an option of the running command, or the option's environment variable, names."""

    given: Path
    option: click.Parameter
    context: click.Context

    @property
    def by_variable(self) -> bool:
        """Whether the environment variable names the file, and not the command line."""
        return self.context.get_parameter_source(self.option.name or "") is ParameterSource.ENVIRONMENT

    def path(self) -> Path:
        """Return the path of the file. Raises BadParameter if the file does not exist or is a directory."""
        path: Path = _EXISTING.convert(self.given, self.option, self.context)
        return path


def file_option(name: str, variable: Variable, help_: str) -> Callable[[F], F]:
    """Return a decorator that adds the option `name`, such as `--ca-file`, with the file that `option_file` returns."""
    return click.option(
        name,
        envvar=variable,
        type=click.Path(path_type=Path),
        metavar="FILE",
        show_envvar=True,
        expose_value=False,
        callback=_keep,
        help=help_,
    )


def option_file(name: str) -> OptionFile | None:
    """Return the file of an option of the running command, such as `ca_file`, or None if no file is given."""
    file: OptionFile | None = click.get_current_context().meta.get(f"{__name__}.{name}")
    return file


def _keep(context: click.Context, option: click.Parameter, value: Path | None) -> None:
    if value is not None:
        file = OptionFile(value, option, context)
        if not file.by_variable:
            file.path()
        context.meta[f"{__name__}.{option.name}"] = file
