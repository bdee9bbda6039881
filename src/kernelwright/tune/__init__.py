"""Choosing among variants of a kernel by timing them: effort, tuner, database."""
