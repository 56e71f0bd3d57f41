"""A coordinator to be killed: opens a session, starts one function, and waits.

Arguments: base of sessions, directory for what it tells, handler, enforcer, and `fork` if it shall
fork a child that stays.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from platform_handlers import write
from platform_testing import call, read_pids

from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session


def main(base: Path, told: Path, handler: str, enforcer: str, fork: bool) -> None:
    session = Session.open(base)
    platform = LocalPlatform(session, told / "logs", enforcer=enforcer)  # type: ignore[arg-type]
    write(str(told / "root"), str(session.root))
    platform.invoke(call("zygote-teller", "tell_zygote", {"file": str(told / "zygote")}))
    read_pids(told / "zygote")
    if fork and os.fork() == 0:
        write(str(told / "forked"), str(os.getpid()))
        time.sleep(600)
        os._exit(0)
    payload = {"seconds": 600, "pid_file": str(told / "pid")}
    platform.invoke(call("solo", handler, payload, memory_mib=500))
    time.sleep(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4], "fork" in sys.argv[5:])
