"""The `oncelog` command: one module per group of commands, and the helpers that they share."""
