"""Kinds of channels, one file each: what each can do and costs, without what moves messages."""
