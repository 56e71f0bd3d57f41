"""Runs a script, and ends the process before the interpreter does, which gloo's threads disturb.

They also disturb who ends a process group: a thread that lets go of a tensor waits for the
interpreter, which waits for the thread (pytorch/pytorch#179291). So groups end with the process.
One that hangs all the same says where, before the test's patience is over.
"""

import faulthandler
import os
import runpy
import sys

import torch.distributed

faulthandler.dump_traceback_later(200, exit=True)
torch.distributed.destroy_process_group = lambda group=None: None
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
