"""The card: who may use it now, how much of its memory, and an account of every wait."""
