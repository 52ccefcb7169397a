"""Decides which connectors and tasks run where. `herder.py` says what the REST interface asks of it."""
