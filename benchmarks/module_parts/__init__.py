"""Public modules at the sizes at which people call them, and how each is measured."""
