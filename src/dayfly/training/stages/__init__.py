"""A model cut into stages: its layers, one stage of them alone, and what passes between two.

Sources: GPipe (Huang et al., 2019), FuncPipe section 3, Hydrozoa.
"""
