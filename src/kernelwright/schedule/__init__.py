"""Graph to plan: which nodes share a kernel, in which configuration, at what cost."""

from kernelwright.schedule.configs import ranked_configs
from kernelwright.schedule.cost import Cost, cost_of_kernel, cost_of_plan
from kernelwright.schedule.fusion import schedule
from kernelwright.schedule.legality import Library

__all__ = ["Cost", "Library", "cost_of_kernel", "cost_of_plan", "ranked_configs", "schedule"]
