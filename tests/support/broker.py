"""The broker as a process of its own, as users run it: started, killed and started again by tests.

`with BrokerProcess(tmp_path, "--durability", "os") as broker:` gives .address, .host, .port, .pid, .data_dir and .log
(its stderr); `kill9()` then `start()` is a crash and a recovery on the same port and data, `restart()` a clean one,
`terminate()` returns the exit code. It is the demo's own class: tests and demo must not differ in how they kill.
"""

from __future__ import annotations

from oncelog.demo.processes import BrokerProcess, StartFailed

__all__ = ["BrokerProcess", "StartFailed"]
