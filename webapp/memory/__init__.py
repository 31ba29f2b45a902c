"""Entries, trash, search and stats over memory.db."""
