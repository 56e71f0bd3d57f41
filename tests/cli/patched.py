"""The command, after some Python: `python patched.py CODE ARGUMENTS`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(sys.argv.pop(1))
    from dayfly.cli.app import main

    main()
