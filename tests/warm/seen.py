"""A program that prints what it sees of itself, as JSON."""

import json
import os
import signal
import sys

import torch

with open("/proc/self/environ", "rb") as file:
    told = file.read()

print(
    json.dumps(
        {
            "argv": sys.argv,
            "path": sys.path,
            "name": __name__,
            "cwd": os.getcwd(),
            "environment": dict(os.environ),
            "umask": os.umask(0),
            "threads": torch.get_num_threads(),
            "signals": {
                int(n): str(signal.getsignal(n)).split(" at ")[0] for n in signal.valid_signals()
            },
            "mask": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            "parent": os.getppid(),
            "encodings": [s.encoding for s in (sys.stdin, sys.stdout, sys.stderr)],
            "errors": [s.errors for s in (sys.stdin, sys.stdout, sys.stderr)],
            "leads": os.getsid(0) == os.getpid(),
            "main": sys.modules["__main__"].__dict__ is globals(),
            "known": os.environb.get(b"MARK", b"-") in told,
        }
    )
)
