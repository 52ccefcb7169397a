"""Runs connectors and tasks in this process, as a herder tells it, and reports what becomes of them."""
