"""Fails while it is imported."""

raise RuntimeError("Error building extension 'x': x.cu(3): error: identifier \"y\" is undefined")

ModelNew = None
