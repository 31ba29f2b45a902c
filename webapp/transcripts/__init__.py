"""Transcripts: export, library, window, grep and cleanup."""
