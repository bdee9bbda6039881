"""Graph to graph: named tables of rules, one driver, and the list of passes."""

from kernelwright.rewrite.driver import Applied, Rewritten
from kernelwright.rewrite.passes import rewrite

__all__ = ["Applied", "Rewritten", "rewrite"]
