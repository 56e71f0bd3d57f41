"""Runs a script, and ends the process where the script does: gloo's threads disturb what follows.

A thread of gloo that lets go of a tensor waits for the interpreter; who destroys a process group
has the interpreter, and waits for the thread (pytorch/pytorch#179291). A script destroys its group
last. So its process ends there, before anything is let go of, and else at the script's last line.
One that hangs all the same says where, before the test's patience is over.
"""

import faulthandler
import os
import runpy
import sys
from typing import Any

import torch.distributed


def end(group: Any = None) -> None:
    """In place of `destroy_process_group`, but of some ranks' group, or beside an error."""
    if group is None and sys.exc_info()[0] is None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


faulthandler.dump_traceback_later(200, exit=True)
torch.distributed.destroy_process_group = end
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
end()
