"""Tests of what runs will take."""
