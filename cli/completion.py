"""Define `oncelog completion`: print the script with which a shell completes commands and options."""

from __future__ import annotations

import click


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete the commands and options of oncelog.

    \b
    source <(oncelog completion bash)                          this shell; in ~/.bashrc: every shell (bash 4.4 or newer)
    oncelog completion zsh > ~/.zfunc/_oncelog                 write into a directory of $fpath
    oncelog completion fish > ~/.config/fish/completions/oncelog.fish
    """
    from click.shell_completion import get_completion_class

    generator = get_completion_class(shell)
    assert generator is not None, shell
    script = generator(context.find_root().command, {}, "oncelog", "_ONCELOG_COMPLETE")
    click.echo(script.source_template % script.source_vars())
