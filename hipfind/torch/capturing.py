"""capture: a model's problems as a list that ``hipfind tune`` takes."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import torch

from hipfind.problem.base import Problem
from hipfind.torch.calls import choose, session_on
from hipfind.torch.recording import record


@dataclasses.dataclass(frozen=True)
class Captured:
    """The problems of a model, each once; ``modules``: names of those that have it, in the same order."""

    model: str
    problems: tuple[Problem, ...]
    modules: tuple[tuple[str, ...], ...]

    def to_yaml(self) -> str:
        """The list as ``hipfind tune`` reads it: a key an item, the modules beside it as a comment."""
        lines = [f"# {len(self.problems)} problems of {self.model}"]
        for problem, names in zip(self.problems, self.modules, strict=True):
            lines.append(f"- {json.dumps(problem.key())}  # {', '.join(names)}")
        return "\n".join([*lines, ""])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``to_yaml`` to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_yaml())


def capture(model: torch.nn.Module, example_input: Any) -> Captured:
    """The problems of a model's convolutions and bilinear upsamplings, called as functions or as modules.

    ``example_input``: a tensor, a tuple of arguments, or a mapping of named ones; it is run forward once. All three
    directions in a model that is training, where gradients are asked for; else the forward one alone. Calls that no
    problem can express (dtypes that hipfind does not know, sparse tensors) are not in the list.
    """
    found: dict[str, tuple[Problem, dict[str, None]]] = {}
    for name, calls in record(model, example_input).calls.items():
        for call in calls:
            session = session_on(call.x.device)
            for direction in call.directions:
                problem, _ = choose(call.maker(direction), call.layout, session)
                _, names = found.setdefault(problem.canonical().key(), (problem, {}))
                names[name or "(the model itself)"] = None
    problems = tuple(problem for problem, _ in found.values())
    return Captured(type(model).__name__, problems, tuple(tuple(names) for _, names in found.values()))
