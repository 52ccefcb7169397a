# Every target sets up what it needs by itself: a virtual environment in .venv, made again when pyproject.toml changes.
PYTHON ?= python3
# Many tests wait for something, so more of them than processors run at a time.
WORKERS ?= 6
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The tests start thousands of short processes. Without bytecode, each would compile all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run demo test coverage test-kafka test-clients crash crash-pipeline crash-connect faults hostile histories mutants bench bench-clients bench-connect scale stalls performance bench-pipeline lint types docs site site-serve clean help

##@ Begin

help: ## list the targets
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with oncelog and everything its development needs; Java too, where there is none and apt-get may

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "oncelog needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip setuptools
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@mkdir -p .build/src && ln -sfn ../.. .build/src/oncelog
	-@$(BIN)/python -m oncelog.pipeline.install_java
	@touch $(READY)

run: $(READY) ## run the broker on 127.0.0.1:9092 with its data in ./data
	$(BIN)/oncelog serve --data-dir data --listen 127.0.0.1:9092

demo: $(READY) ## 336,776 flights, exactly once through a job and a pipeline on Spark, while their processes are killed
	$(BIN)/python -m oncelog.demo

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) .build build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

##@ Before every commit

test: $(READY) ## all tests but the heavy suites; lint, types, import rules and stale docs among them
	$(BIN)/pytest tests -m 'not slow' -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(READY) ## ruff and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY) ## mypy --strict on the package, and mypy and pyright on tests and bench
	cd .build/src && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p oncelog
	cd tests && ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache .
	$(BIN)/mypy bench/*.py
	$(BIN)/pyright -p tests

coverage: $(READY) ## which lines `make test` reaches, in .build/coverage/html; processes that the tests start are counted, too
	rm -rf .build/coverage
	$(BIN)/coverage run -m pytest tests -m 'not slow' -n $(WORKERS) --dist loadfile --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

##@ Heavy suites

test-kafka: $(READY) ## the end-to-end tests with the bundled client against Apache Kafka 4.1 (needs java 17, mvn)
	$(BIN)/pytest tests/e2e tests/pipeline --kafka

test-pipeline: $(READY) ## the tests of the pipeline on Spark, those included that `make test` leaves out (needs java 17)
	$(BIN)/pytest tests/pipeline tests/examples/test_spark_job.py --ignore tests/pipeline/test_cluster.py --ignore tests/pipeline/test_rolling_restart.py

test-clients: $(READY) ## unmodified clients of other languages on our broker, and every client by every login over TLS (needs java 17 and mvn, go, npm; skips what is missing)
	$(BIN)/pytest tests/interop/test_other_languages.py tests/interop/test_logins_of_clients.py tests/interop/test_quotas_of_java.py tests/interop/test_broker_configs_of_java.py

crash: $(READY) ## 20 runs of the demo's core with kills at random moments
	$(BIN)/pytest tests/crash -m slow --timeout 3600 --ignore tests/crash/test_pipeline_killed.py --ignore tests/crash/test_connect_killed.py

crash-pipeline: $(READY) ## 260 kills under a Spark job: 200 on local[2], 40 with Apache Kafka 4.1, 20 on a cluster; a rolling restart (java 17, mvn)
	$(BIN)/pytest tests/pipeline/test_cluster.py tests/pipeline/test_rolling_restart.py tests/crash/test_pipeline_killed.py -m slow -s --timeout 3600

crash-connect: $(READY) ## 4 times 8 rounds of kills of three connect workers and their broker; 100,000 changes in PostgreSQL under kills; replacing Kafka Connect's (java 17, mvn)
	$(BIN)/pytest tests/crash/test_connect_killed.py tests/e2e/test_connect_postgres_killed.py tests/interop/test_connect_mixed_group.py tests/interop/test_connect_acls.py -m slow -s --timeout 3600

faults: $(READY) ## faults of disk and files in a real broker: full, flipped, lost, gone (some need root, for a small disk)
	$(BIN)/pytest tests/faults --timeout 600

hostile: $(READY) ## attacks of clients without rights: the broker's memory and its neighbours' latency stay bounded, as a table
	$(BIN)/pytest tests/hostile -m slow

histories: $(READY) ## random histories of transactions in simulated time: make histories FIRST=0 LAST=100000
	cd tests && ../$(BIN)/python -m support.simulation $(or $(FIRST),0) $(or $(LAST),100000)

mutants: $(READY) ## realistic bugs, put into a copy of the source one by one: a suite must notice each
	cd tests && ../$(BIN)/python -m support.mutants

##@ Measurements

bench: $(READY) ## oncelog beside Apache Kafka 4.1, the same client, alternated runs (needs java 17, mvn)
	PYTHONPATH=tests:. $(BIN)/python -m bench

bench-clients: $(READY) ## the bundled client beside aiokafka and confluent-kafka on our broker, alternated runs
	$(BIN)/python -m oncelog.bench.clients

bench-pipeline: $(READY) ## the pipeline beside Spark's own Kafka connector, alternated runs (needs java 17, mvn)
	$(BIN)/python -m oncelog.bench.pipeline

bench-connect: $(READY) ## our connect worker beside Kafka Connect 4.1: records/s, start, memory, alternated runs (needs java 17, mvn)
	PYTHONPATH=tests:. $(BIN)/python -m bench.connect

scale: $(READY) ## start, stop and memory with 10,000 partitions, 100,000 transactional ids, 10,000 groups, 200,000 offsets
	PYTHONPATH=tests:. $(BIN)/python -m bench.scale

stalls: $(READY) ## how long a small Produce waits beside large work, with Apache Kafka 4.1 beside us (needs java 17, mvn)
	PYTHONPATH=tests:. $(BIN)/python -m bench.stalls

performance: $(READY) ## how cost grows with partitions, connections, ids, record size and log size: writes docs/performance.md
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[plots]'
	PYTHONPATH=tests:. $(BIN)/python -m bench.performance --docs docs

##@ Documents

docs: $(READY) ## write the generated parts of docs/ anew
	$(BIN)/python -m oncelog.cli.docs

site: $(READY) ## build the documentation site into .build/site; fails on a broken link and on an undocumented public name
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/pytest tests/house/test_site.py -q -k 'not builds'

site-serve: $(READY) ## show the documentation site on 127.0.0.1:8000, and build it anew when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000
