"""Processes: where they are forked, and what parent and child say to each other."""
