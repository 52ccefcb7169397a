"""`python -m oncelog.cli`: the same as the `oncelog` command."""

from .main import main

main()
