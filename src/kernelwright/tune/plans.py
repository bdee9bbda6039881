"""Tune the kernels of a plan, and use what is known: two steps that meet in the database.

tune_plan(plan, machine, QUICK, 30.0, database, on_kernel)   # writes rows
plan = best_known(plan, machine, database)                   # reads the best of them
"""

from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from kernelwright.codegen import cuda_source
from kernelwright.env import usable_cores
from kernelwright.ir.configs import Config
from kernelwright.ir.plan import Kernel, Launch, Plan
from kernelwright.ir.types import TensorType
from kernelwright.machine import Machine
from kernelwright.schedule import ranked_configs
from kernelwright.toolchain.cache import content_key
from kernelwright.toolchain.compilers import require_nvcc
from kernelwright.toolchain.cuda import compile_libraries
from kernelwright.tune.database import Database, Key, rows_of
from kernelwright.tune.effort import Effort
from kernelwright.tune.measuring import KernelTimer
from kernelwright.tune.tuner import Ending, Variant, tune
from kernelwright.tune.turns import Turns, in_one_turn


def with_config(kernel: Kernel, config: Config) -> Kernel:
    """The kernel in another configuration of its family."""
    return replace(kernel, config=config)


def with_configs(plan: Plan, configs: dict[str, Config]) -> Plan:
    """The plan with other configurations for the kernels named in `configs`."""

    def changed(step: Launch) -> Launch:
        config = configs.get(step.kernel.name, step.kernel.config)
        return replace(step, kernel=with_config(step.kernel, config))

    steps = tuple(changed(step) if isinstance(step, Launch) else step for step in plan.steps)
    return replace(plan, steps=steps)


def tune_plan(
    plan: Plan,
    machine: Machine,
    effort: Effort,
    budget_seconds: float,
    database: Database,
    on_kernel: Callable[[int, Kernel], None],
) -> None:
    """Time configurations of every kernel that the database does not know at these sizes.

    Runs on the current CUDA device and needs nvcc; the budget is for all kernels together. After
    Ctrl-C the rows of what was timed are in the database.
    """
    unknown = [
        kernel
        for kernel in plan.kernels
        if len(_candidates(kernel, machine)) > 1
        and database.best(key_of(plan, kernel, machine)) is None
    ]
    for number, kernel in enumerate(unknown):
        on_kernel(number, kernel)
        variants = [
            Variant(
                config=asdict(config),
                source=source_of(plan, kernel, config),
                function=f"launch_{kernel.name}",
            )
            for config in _candidates(kernel, machine)[: effort.variants]
        ]
        device = torch.device("cuda", torch.cuda.current_device())
        timer = KernelTimer(kernel, device)
        with Turns(device.index) as turns:
            result = tune(
                variants,
                turns.alone(timer),
                budget_seconds=budget_seconds / len(unknown),
                finalists=effort.finalists,
                compile_all=turns.while_compiling(
                    in_one_turn(compile_libraries, usable_cores()), timer.prepare
                ),
                clock=turns.clock,
            )
        del timer
        torch.cuda.empty_cache()
        database.add(rows_of(key_of(plan, kernel, machine), result))
        if result.ending is Ending.INTERRUPTED:
            return


def best_known(plan: Plan, machine: Machine, database: Database) -> Plan:
    """The plan with the fastest configuration on record for each kernel."""
    configs: dict[str, Config] = {}
    for kernel in plan.kernels:
        row = database.best(key_of(plan, kernel, machine))
        known = {} if row is None else dict(row.config)
        for config in _candidates(kernel, machine):
            if asdict(config) == known:
                configs[kernel.name] = config
    return with_configs(plan, configs)


def key_of(plan: Plan, kernel: Kernel, machine: Machine) -> Key:
    """What a timing of the kernel holds for: its text in the model's configuration says it all."""
    dims = [
        dim.hint for kind in kernel.inputs if isinstance(kind, TensorType) for dim in kind.shape
    ]
    return Key(
        kernel=content_key(source_of(plan, kernel, _candidates(kernel, machine)[0])),
        sizes=tuple(dims),
        card=machine.name,
        compiler=f"nvcc {require_nvcc().version}",
    )


def source_of(plan: Plan, kernel: Kernel, config: Config) -> str:
    """CUDA text of one kernel alone in one configuration."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    mine = next(step for step in launches if step.kernel.name == kernel.name)
    alone = replace(mine, kernel=with_config(mine.kernel, config))
    return cuda_source(replace(plan, steps=(alone,)))


def _candidates(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return ranked_configs(kernel, machine)
