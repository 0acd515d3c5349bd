"""What in the groups of an optimizer torch's `set_optimizer_state_dict` cannot load whole state into.

Source: `torch/distributed/checkpoint/state_dict.py` (`_init_optim_state` makes a step with zero gradients;
`_load_optim_state_dict` has no place for what only the state's groups have), torch 2.13.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from codemods.analysis.module import Module, last_name
from codemods.analysis.values import Literal, options

if TYPE_CHECKING:
    from codemods.project import Project

_SCHEDULES = ("lr_scheduler", "initial_lr", "get_scheduler", "_schedule_with_warmup")
_MAKES_SCHEDULE = re.compile(r"LR$|schedul", re.IGNORECASE)


def has_no_eps(project: Project, module: Module, optim: ast.expr) -> bool:
    """Whether an optimizer is built with an `eps` of zero, for all of its parameters or for a group."""
    for home, built in project.links.optimizers(module, optim):
        for node in ast.walk(built):
            match node:
                case ast.keyword(arg="eps", value=given):
                    told = [given]
                case ast.Dict():
                    items = zip(node.keys, node.values, strict=True)
                    told = [v for k, v in items if isinstance(k, ast.Constant) and k.value == "eps"]
                case _:
                    continue
            values = (value for one in told for value in options(project.evaluate(home, one)))
            if any(isinstance(value, Literal) and value.value == 0 for value in values):
                return True
    return False


def may_lack_schedule(project: Project, module: Module, place: ast.expr, optim: ast.expr) -> bool:
    """Whether what a schedule puts into the groups of an optimizer can be in the state and not in the
    optimizer yet: the project has schedules, and none is made of this one above in the function."""
    if not any(word in one.text for one in project.looked_at for word in _SCHEDULES):
        return False
    function, text = module.function(place) or module.tree, ast.unparse(optim)
    return not any(
        isinstance(call, ast.Call)
        and _MAKES_SCHEDULE.search(last_name(call.func))
        and text in (ast.unparse(one) for one in (*call.args, *(k.value for k in call.keywords)))
        and module.span(call).end <= module.span(place).start
        for call in ast.walk(function)
    )
