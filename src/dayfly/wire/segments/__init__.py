"""Shared memory for messages: a file a sender, mapped by all, written by one at a time."""
