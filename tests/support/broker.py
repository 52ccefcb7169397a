"""Run the broker as a separate process, as users do. Tests can kill it and start it again.

`with BrokerProcess(tmp_path, "--durability", "os") as broker:` gives .address, .host, .port, .pid, .data_dir and .log
(its stderr). `kill9()` and then `start()` are a crash and a recovery on the same port and data. `restart()` stops
cleanly and starts again. `terminate()` returns the exit code. The class belongs to the demo, so that tests and demo
kill processes in the same way.
"""

from __future__ import annotations

from oncelog.demo.processes import BrokerProcess, StartFailed

__all__ = ["BrokerProcess", "StartFailed"]
