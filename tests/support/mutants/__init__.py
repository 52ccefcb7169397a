"""Put realistic bugs into a copy of the source, one by one, and run suites that must detect them: `make mutants`."""
