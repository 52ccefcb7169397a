"""Realistic bugs, each put into a copy of the source, and the suites that must notice it: `make mutants`."""
