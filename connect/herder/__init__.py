"""Decides which connectors and tasks run on which worker. `herder.py` defines the interface that the REST API uses."""
