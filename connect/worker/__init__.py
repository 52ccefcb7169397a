"""Runs connectors and tasks in this process on behalf of a herder, and reports their states."""
