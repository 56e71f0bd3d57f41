"""`python -m dayfly`: the command."""

from __future__ import annotations

from dayfly.cli.app import main

if __name__ == "__main__":
    main()
