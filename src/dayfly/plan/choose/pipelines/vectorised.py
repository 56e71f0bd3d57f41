"""`kernels` on whole arrays, for NumPy alone."""

from dayfly.plan.choose.pipelines.kernels import descend, expand, slacks, tables, undominated
