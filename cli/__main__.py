"""Run the `oncelog` command as `python -m oncelog.cli`."""

from .main import main

main()
