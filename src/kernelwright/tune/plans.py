"""Tune the kernels of a plan, and use what is known: two steps that meet in the database.

tune_plan(plan, machine, QUICK, 30.0, database, on_trial)    # writes rows
plan = best_known(plan, machine, database)                   # reads the best of them
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import torch

from kernelwright.codegen import kernel_unit
from kernelwright.env import usable_cores
from kernelwright.ir.configs import Config
from kernelwright.ir.plan import Kernel, Launch, Plan
from kernelwright.ir.types import TensorType
from kernelwright.machine import Machine
from kernelwright.schedule import ranked_configs
from kernelwright.schedule.column_moments import with_parts_of_configs
from kernelwright.toolchain.cache import content_key
from kernelwright.toolchain.compilers import require_nvcc
from kernelwright.toolchain.cuda import compile_libraries
from kernelwright.tune.database import Database, Key, rows_of
from kernelwright.tune.effort import Effort
from kernelwright.tune.measuring import KernelTimer, take_device
from kernelwright.tune.tuner import Failure, Timing, Variant, tune
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
    return replace(plan, steps=with_parts_of_configs(steps))


OnTrial = Callable[[int, int, str], None]
"""Hears of a kernel that is timed now: how many variants were before it, of how many, its name."""


def tune_plan(
    plan: Plan,
    machine: Machine,
    effort: Effort,
    budget_seconds: float,
    database: Database,
    on_trial: OnTrial,
) -> None:
    """Time configurations of every kernel that the database does not know at these sizes.

    All kernels together: the best-ranked of each first, compiled side by side. Runs on the current
    CUDA device and needs nvcc. After Ctrl-C the rows of what was timed are in the database.
    """
    unknown = {
        f"launch_{kernel.name}": kernel
        for kernel in plan.kernels
        if len(_candidates(kernel, machine)) > 1
        and database.best(key_of(plan, kernel, machine)) is None
    }
    if not unknown:
        return
    most = max(len(unknown), round(budget_seconds * usable_cores() / _COMPILING_SECONDS))
    variants = list(islice(_by_rank(plan, unknown, machine, effort.variants), most))
    device = torch.device("cuda", torch.cuda.current_device())
    timed = 0

    def measure(variant: Variant, library: Path) -> Timing | Failure:
        nonlocal timed
        kernel = unknown[variant.function]
        on_trial(timed, len(variants), kernel.name)
        timed += 1
        # The operands of all kernels together may be more than the device holds.
        timer = KernelTimer(kernel, device)
        timer.prepare()
        return timer(variant, library)

    with Turns(device.index) as turns:
        result = tune(
            variants,
            turns.alone(measure),
            budget_seconds=budget_seconds,
            finalists=effort.finalists,
            compile_all=turns.while_compiling(
                in_one_turn(compile_libraries, usable_cores()),
                lambda: take_device(device),
            ),
            clock=turns.clock,
        )
    torch.cuda.empty_cache()
    for function, kernel in unknown.items():
        database.add(rows_of(key_of(plan, kernel, machine), result.of(function)))


_COMPILING_SECONDS = 2.0
"""Seconds of one core that a variant takes at the least: more of them are not written."""


def _by_rank(
    plan: Plan, kernels: Mapping[str, Kernel], machine: Machine, most: int
) -> Iterator[Variant]:
    """The best configuration of each kernel, then the second of each, up to so many of one."""
    ranked = {function: _candidates(it, machine)[:most] for function, it in kernels.items()}
    for rank in range(most):
        for function, configs in ranked.items():
            if rank < len(configs):
                yield Variant(
                    config=asdict(configs[rank]),
                    source=source_of(plan, kernels[function], configs[rank]),
                    function=function,
                )


def best_known(plan: Plan, machine: Machine, database: Database) -> Plan:
    """The plan with the fastest configuration on record for each kernel."""
    if not database.knows(machine.name):  # To name a kernel its text is written.
        return plan
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
    """CUDA text of one kernel alone in one configuration, as a module's build compiles it."""
    return kernel_unit(with_configs(plan, {kernel.name: config}), kernel.name)


def _candidates(kernel: Kernel, machine: Machine) -> tuple[Config, ...]:
    return ranked_configs(kernel, machine)
