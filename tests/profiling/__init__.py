"""Tests of how a job is profiled."""
