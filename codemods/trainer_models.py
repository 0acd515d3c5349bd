"""What is done with `trainer.model` where a launch script or settings file tells its trainer to use FSDP.

Source: `transformers/trainer.py` (`_wrap_model`, `model_wrapped`), `accelerate/accelerator.py`
(`get_state_dict`). Once the settings are FSDP2's, the model's own state dict is shards.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from codemods.analysis.conditions import conditions
from codemods.analysis.module import Module
from codemods.analysis.spoken_names import is_where_unsharded
from codemods.editing.code import finding
from codemods.model import Finding

CODE = "FM623"
_SETTINGS = frozenset({"FM601", "FM610", "FM614", "FM618"})
"""Codes of settings away from the program that become FSDP2's."""
_ASKED = re.compile(rb"\b(?:trainer|self)\.model(?:_wrapped)?\.(?:state_dict|save_pretrained)\(")
_LIBRARIES = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:transformers|trl)\b", re.MULTILINE)
_REMEDY = (
    "use `trainer.accelerator.get_state_dict(trainer.model)`, called on every rank, or `trainer.save_model()`"
)


def changes_settings(found: Iterable[Finding]) -> bool:
    """Whether some settings that no program holds become FSDP2's."""
    return any(one.code in _SETTINGS and one.edits for one in found)


def asks_trainer(text: bytes) -> bool:
    """Whether a file may ask a trainer's model for its state dict, by its words."""
    return _ASKED.search(text) is not None


def trainer_models(module: Module, said: Iterable[Finding]) -> Iterator[Finding]:
    """The places of a file where a trainer's model is asked for its state dict.

    Args:
        said: what is known; a place that another finding speaks of, or changes, is left out.
    """
    here = [one for one in said if one.place.path == module.path]
    lines = {one.place.line for one in here}
    changed = [edit.span for one in here for edit in one.edits if edit.path == module.path]
    for call in (*module.called("state_dict"), *module.called("save_pretrained")):
        span = module.span(call)
        if module.place(call).line in lines or any(one.holds(span) or span.holds(one) for one in changed):
            continue
        if _is_of_trainer(module, call):
            message = (
                f"`{ast.unparse(call.func)}` gives, or saves, shards where the trainer's settings are "
                "FSDP2's, as those of this repository are now"
            )
            yield finding(module, call, CODE, message, remedy=_REMEDY)


def _is_of_trainer(module: Module, call: ast.Call) -> bool:
    """Whether a call is one of `trainer.model`, or of `self.model` in a trainer's class, where nothing says
    that FSDP is not in use."""
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(holder, ast.Attribute) or holder.attr not in ("model", "model_wrapped"):
        return False
    owner = ast.unparse(holder.value)
    if owner.rpartition(".")[2] != "trainer" and not (owner == "self" and _is_in_trainer(module, call)):
        return False
    if any(keyword.arg in ("state_dict", None) for keyword in call.keywords):
        return False
    told = list(conditions(module, call))
    is_of_other = any("deepspeed" in ast.unparse(test).lower() and holds for test, holds in told)
    # Under FSDP the trainer hands `_save` the whole state dict: what stands there for None is for others.
    is_without = any(ast.unparse(test) == "state_dict is None" and holds for test, holds in told)
    return not is_of_other and not is_without and not is_where_unsharded(module, call)


def _is_in_trainer(module: Module, node: ast.AST) -> bool:
    """Whether a place is in a class that derives from a trainer of Transformers or TRL, by its name."""
    owner = module.class_of(node)
    bases = [ast.unparse(base).rpartition(".")[2] for base in owner.bases] if owner is not None else []
    return any(base.endswith("Trainer") for base in bases) and _LIBRARIES.search(module.text) is not None
