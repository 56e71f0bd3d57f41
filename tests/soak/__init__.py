"""Random deaths for minutes, and the same bits: python -m tests.soak --minutes 10 --seed 1."""
