"""The processes of one judgement: who is started when, and in which environment."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kernelwright.errors import KernelwrightError
from kernelwright.problem import Problem
from kernelwright.toolchain.extension import is_being_built
from kernelwright.toolchain.records import Target
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.judging.answers import seconds_of_call
from kernelwright.worker.judging.guarding import GuardWatch
from kernelwright.worker.judging.sanitizer import Sanitizing, find_sanitizer, tools_for
from kernelwright.worker.judging.signs import may_bring_kernels
from kernelwright.worker.options import Baseline, Evidence, Haste, JudgeOptions, Speed, Watch
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Answer
from kernelwright.worker.process.hanging import Patience, compiles, patience_for
from kernelwright.worker.process.requests import Role, StartRequest
from kernelwright.worker.process.spawning import Spawner

_PROCESSES = (Baseline.COMPILED, Baseline.COMPILED_MAX)
"""Baselines with a process of their own, which has the role of the same name."""


def watches(options: JudgeOptions) -> bool:
    """Whether a candidate that is right runs once more with its kernels counted and silenced."""
    wanted = options.evidence is Evidence.GATHERED and options.watch is not Watch.NOTHING
    return wanted and not options.cases


class Children:
    """Reference, timer, candidate and baselines of a problem, each in a process of its own.

    A context: leaving it ends every child. Those that know the problem alone start with it.
    """

    candidate: ChildProcess

    def __init__(
        self, problem: Problem, target: Target, options: JudgeOptions, folder: Path
    ) -> None:
        self.problem = problem
        self.ledger = Ledger()
        self._options = options
        self._target = target
        self._candidate_path = Path()
        self._stack = ExitStack()
        self._spawner = Spawner(problem, target, options, folder, self.ledger, self._stack)
        self._prelaunched: dict[Role, ChildProcess] = {}
        self._children: list[ChildProcess] = []
        self._times_soon = False
        self._is_guarded = False
        self._watched: Future[None] | None = None
        self._compiles_up_to = 0
        """Bytes of a call for which torch.compile need not be asked."""
        self.guard: GuardWatch | None = None
        """The candidate under guards, once it is wanted."""
        self.sanitizing: Sanitizing | None = None
        """The candidate under compute-sanitizer, once it is wanted."""
        self.reference = self.child(Role.REFERENCE)
        self.timer = self.child(Role.TIMER)

    def __enter__(self) -> Self:
        self.reference.launch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            child.dismiss()  # all at once: a process that has a card takes a while to end
        self._stack.close()

    def admit(self, candidate_path: Path) -> None:
        """Start the process of the candidate, whose file is there now; `build` is what reads it."""
        self._candidate_path = candidate_path.resolve()
        self.candidate = self.child(Role.CANDIDATE)
        self.candidate.launch()
        if self._options.cases:
            self.launch_the_rest()
        elif self._options.haste is Haste.WATCHED_FIRST:
            self._launch_who_is_watched()
            self._launch_who_is_guarded()

    def launch_the_rest(self) -> None:
        """Those that a candidate which is right will need, once.

        PyTorch takes seconds to start: all at once rather than each when it is its turn.
        """
        self.launch_who_waits_for_nothing()
        if self._watched is None:
            self._launch_who_is_watched()
            self._launch_who_is_guarded()

    def launch_who_waits_for_nothing(self) -> None:
        """Those of them that are started at once wherever a process can be forked."""
        self.launch_who_times()
        self._launch_sanitizers()

    def launch_watched_by(self, submit: Callable[[Callable[[], None]], Future[None]]) -> None:
        """Let a thread start the others, which may have to wait for compilers of ours."""

        def launch() -> None:
            self._launch_who_is_watched()
            self._launch_who_is_guarded()

        self._watched = submit(launch)

    def see_watched_launched(self) -> None:
        """Wait for that thread."""
        if self._watched is not None:
            with self.ledger.spending("launching those that are watched"):
                self._watched.result()

    def _launch_sanitizers(self) -> None:
        wanted = self._target is Target.CUDA and not self._options.cases
        if not wanted or self.sanitizing is not None:
            return
        tools = tools_for(self._options.sanitizers, self._candidate_path)
        program = find_sanitizer() if tools else None
        if program is not None:
            start = self._start(Role.CANDIDATE)
            self.sanitizing = Sanitizing(
                program, tools, start, self._spawner.quarters(self._candidate_path)
            )
            self._stack.callback(self.sanitizing.close)

    def _launch_who_is_guarded(self) -> None:
        wanted = self._target is Target.CUDA and watches(self._options)
        if wanted and not self._is_guarded and may_bring_kernels(self._candidate_path):
            self._is_guarded = True
            with suppress(KernelwrightError):  # no compiler for the guards: the checks say so
                child = self.child(Role.GUARDED)
                child.launch()
                self.guard = GuardWatch(
                    child, lambda: self.patience(child), self._options.timeouts.run
                )

    def patience(
        self, child: ChildProcess, reference: Answer | None = None, *, beside: float = 0.0
    ) -> Patience:
        """How long a child with the candidate may hang where the reference gave that answer.

        None for what the reference does not do. `beside`: seconds that its answer took in all.
        """
        timeouts = self._options.timeouts
        called = seconds_of_call(reference)
        quick = called is not None and not self._spawner.emulated
        return patience_for(
            least=timeouts.hang if quick else timeouts.slow_hang,
            call=called or 0.0,
            beside=beside,
            compiles=lambda: self._has_compilers(child),
            compiling=timeouts.build,
        )

    def _has_compilers(self, child: ChildProcess) -> bool:
        """Whether a child compiles, or waits for what another child compiles for all of them."""
        return compiles(child.number(), self._spawner.exchange) or is_being_built(
            self._candidate_path
        )

    def _launch_who_is_watched(self) -> None:
        watched = self._target is Target.CUDA and watches(self._options)
        if watched and Role.WITNESS not in self._prelaunched:
            self.prelaunch((Role.WITNESS,))

    def launch_who_times(self) -> None:
        """The timer and the baselines, once."""
        timed = self._target is Target.CUDA and self._options.speed is Speed.MEASURED
        if timed and not self._times_soon:
            self._times_soon = True
            self.timer.launch()
            self.prelaunch(Role(it.value) for it in self._options.baselines if it in _PROCESSES)

    def prelaunch(self, roles: Iterable[Role]) -> None:
        """Start children that `child` gives out later; what fails now will fail then as well."""
        for role in roles:
            with suppress(KernelwrightError):  # no compiler for what counts kernels
                child = self.child(role)
                child.launch()
                self._prelaunched[role] = child

    def child(self, role: Role, order_seed: int = 0) -> ChildProcess:
        """A further child, launched only where `prelaunch` did so; it ends with the others."""
        if not order_seed and role in self._prelaunched:
            return self._prelaunched.pop(role)
        child = self.spawn(self._start(role, order_seed))
        self._stack.callback(child.close)
        self._children.append(child)
        return child

    def spawn(self, start: StartRequest) -> ChildProcess:
        """The process behind a child."""
        return self._spawner.spawn(start)

    def _start(self, role: Role, order_seed: int = 0) -> StartRequest:
        compiles_up_to = self._compiles_up_to if role is Role.COMPILED else 0
        return self._spawner.start(role, self._candidate_path, order_seed, compiles_up_to)

    def source(self) -> str:
        """The candidate's text."""
        return self._candidate_path.read_text(encoding="utf-8")

    def words(self, role: Role) -> Path:
        """The file of words that a child shares with the timer."""
        return self._spawner.words(role)
