"""The buffers of one problem on one device, and how solutions run on them: poisoned, checked, captured, timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hipfind.device.base import Memory
from hipfind.errors import OutOfMemoryError
from hipfind.find.operands import POISON, Operands
from hipfind.find.session import Session
from hipfind.find.timing import Runner
from hipfind.find.verify import Verifier
from hipfind.invokers.invoker import Invoker
from hipfind.invokers.steps import flat
from hipfind.problem.base import Problem

_MOST_CAPTURED = 256
"""Launches of a candidate that are captured as one piece; recording more takes longer than it is worth."""


class Bench:
    """Operands with data, one workspace for all, and a verifier that is made when it is first needed."""

    def __init__(self, problem: Problem, session: Session) -> None:
        session.device.synchronize()  # a device that never runs says so before data is made
        self.problem = problem
        self.session = session
        self.operands = Operands(problem, session.device)
        self.workspace: Memory | None = None
        self._verifier: Verifier | None = None

    def make_workspace(self, sizes: Iterable[int]) -> dict[int, str]:
        """As large as the largest of ``sizes`` that the device can give; the sizes it cannot give, with the reason."""
        refused: dict[int, str] = {}
        for size in sorted(set(sizes), reverse=True):
            if size == 0:
                break
            try:
                self.workspace = self.session.device.allocate(size)
                break
            except OutOfMemoryError as error:
                refused[size] = str(error)
        return refused

    def run_poisoned(self, invoker: Invoker) -> None:
        """Run once on an output and a workspace full of NaN, and wait. Raises DeviceError."""
        device = self.session.device
        if self.workspace is not None:
            device.set_bytes(self.workspace.address, self.workspace.nbytes, POISON)
        self.operands.poison_output()
        invoker.run(self.operands.addresses(self.workspace))
        device.synchronize()

    def check(self, name: str) -> None:
        """Judge the output that lies there now under this name; see ``refused``."""
        if self._verifier is None:
            self._verifier = Verifier(self.problem, self.operands.host)
        self._verifier.check(name, self.operands.read_output())

    def refused(self, name: str) -> str | None:
        """Why the output checked under this name is wrong, None where it is right or was not checked."""
        return self._verifier.refused.get(name) if self._verifier else None

    def runner(self, name: str, invoker: Invoker) -> Runner:
        """As one piece where the device can: steps shorter than their launch would be timed as launches."""
        addresses = self.operands.addresses(self.workspace)
        prepare = self.operands.restore_output if self.problem.reads_output else None
        queue: Callable[[int], None] | None = None
        if sum(count for count, _ in flat(invoker.solution.steps)) <= _MOST_CAPTURED:
            queue = self.session.device.capture(lambda stream: invoker.run(addresses, stream))
        run = queue or (lambda stream: invoker.run(addresses, stream))
        return Runner(name, lambda: run(0), prepare)
