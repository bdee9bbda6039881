"""Has no class for a module."""

MODEL = None
