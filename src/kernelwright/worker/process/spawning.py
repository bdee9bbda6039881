"""How the processes of one judgement are made: what they are told and what they may touch."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kernelwright import env
from kernelwright.emulator.compile import build_shared
from kernelwright.emulator.headers import headers_of_candidate
from kernelwright.problem import Problem
from kernelwright.toolchain.extension import prepare_extension_folder
from kernelwright.toolchain.guards import guards_library
from kernelwright.toolchain.launches import launches_library
from kernelwright.toolchain.records import Target
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.options import JudgeOptions, Watch
from kernelwright.worker.process.card_start import starts_of_machine
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.environments import OF_ALL, of_trusted
from kernelwright.worker.process.nursery import LOADED_FIRST
from kernelwright.worker.process.requests import Role, StartRequest
from kernelwright.worker.sandbox.confining import Confinement
from kernelwright.worker.sandbox.folders import Quarters, prepare_quarters
from kernelwright.worker.timer.words import make_words_folder, words_of

_STRANGE = (Role.CANDIDATE, Role.WITNESS, Role.GUARDED)
"""Roles whose processes run a stranger's code."""
_LISTENING = (Role.WITNESS, Role.GUARDED)
"""Roles in which launches are counted."""
_OF_ROLE: Mapping[Role, Mapping[str, str]] = {Role.TIMER: {env.CONNECTIONS.name: "1"}}
"""Kernels that are timed have all queues that CUDA gives."""


class Spawner:
    """Makes the processes of one judgement, in folders that end with `stack`."""

    def __init__(
        self,
        problem: Problem,
        target: Target,
        options: JudgeOptions,
        folder: Path,
        ledger: Ledger,
        stack: ExitStack,
    ) -> None:
        self.exchange = folder / "exchange"
        """The folder of tensors that go from child to child."""
        self.exchange.mkdir()
        self.emulated = target is Target.CPU and options.watch is Watch.EMULATOR
        """Whether strangers run on the emulator."""
        self._problem = problem
        self._target = target
        self._options = options
        self._folder = folder
        self._ledger = ledger
        self._environment = of_trusted(problem.source)
        self._words = make_words_folder(folder)
        stack.callback(shutil.rmtree, self._words, ignore_errors=True)

    def spawn(self, start: StartRequest) -> ChildProcess:
        """The process behind a child, not launched yet."""
        seconds = self._options.timeouts.start
        if start.role not in _STRANGE:
            environment = {**self._environment, **_OF_ROLE.get(start.role, {})}
            return ChildProcess(start, environment, Confinement(), seconds, self._ledger)
        candidate = Path(start.candidate_path)
        if start.emulate:
            build_shared(headers_of_candidate(candidate.read_text(errors="replace")))
        quarters = self.quarters(candidate)
        environment = {**OF_ALL, **quarters.environment}
        if start.role in _LISTENING:
            environment[LOADED_FIRST] = str(launches_library())
        return ChildProcess(start, environment, quarters.confinement, seconds, self._ledger)

    def start(
        self, role: Role, candidate: Path, order_seed: int = 0, compiles_up_to: int = 0
    ) -> StartRequest:
        """What a process is told first. Bytes of `compiles_up_to` as `StartRequest` has them."""
        emulate = self.emulated and role in _STRANGE
        cuda = self._target is Target.CUDA or emulate
        return StartRequest(
            role=role,
            problem_path=str(self._problem.path),
            problem_source=self._problem.source,
            candidate_path=str(candidate) if role in _STRANGE else "",
            folder=str(self.exchange),
            device=f"cuda:{self._options.device_index}" if cuda else "cpu",
            emulate=emulate,
            order_seed=order_seed,
            threads=env.usable_cores(),
            starts=starts_of_machine() if cuda and not emulate else (),
            guards=str(guards_library()) if role is Role.GUARDED else "",
            compiles_up_to=compiles_up_to,
        )

    def quarters(self, candidate: Path) -> Quarters:
        """Folders and limits of a process that runs a stranger's file."""
        return prepare_quarters(
            prepare_extension_folder(candidate),
            self._folder / "candidate",
            (self.exchange, self.words(Role.CANDIDATE)),
            self._options.processes,
        )

    def words(self, role: Role) -> Path:
        """The file of words that a child shares with the timer."""
        return words_of(self._words, role.name.lower())
