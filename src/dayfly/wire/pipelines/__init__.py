"""Pipelines: a model in stages, and what passes between them in a step, as schedules."""
