"""Graph to plan: which nodes share a kernel, in which configuration, at what cost."""

from kernelwright.schedule.apart import Apart, kept_apart
from kernelwright.schedule.configs import ranked_configs
from kernelwright.schedule.cost import Cost, cost_of_kernel, cost_of_plan, least_cost
from kernelwright.schedule.fusion import schedule
from kernelwright.schedule.legality import Library
from kernelwright.schedule.planning import OPEN, Choices, Planned, plan_graph
from kernelwright.schedule.printing import print_plan

__all__ = [
    "OPEN",
    "Apart",
    "Choices",
    "Cost",
    "Library",
    "Planned",
    "cost_of_kernel",
    "cost_of_plan",
    "kept_apart",
    "least_cost",
    "plan_graph",
    "print_plan",
    "ranked_configs",
    "schedule",
]
