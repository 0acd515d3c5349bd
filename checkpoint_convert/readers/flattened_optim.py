"""Optimizer state flattened by parameter name: `state.<fqn>.<name>`, `param_groups.<fqn>.<option>`.

What `StateDictOptions(flatten_optimizer_state_dict=True)` gives, and torchtitan saves. The groups themselves
are not in it: parameters with the same options were in one, or might as well have been.
Source: torch `distributed/checkpoint/state_dict.py` (`_flatten_optim_state_dict`).
"""

from __future__ import annotations

from checkpoint_convert import digest
from checkpoint_convert.values import is_tensor

_STATE = "state."
_GROUPS = "param_groups."


def unflattened(value: object) -> dict[object, object] | None:
    """The state dict that was flattened; None where that is no flattened one."""
    if not isinstance(value, dict) or not value:
        return None
    if not all(isinstance(key, str) and key.startswith((_STATE, _GROUPS)) for key in value):
        return None
    state: dict[object, dict[str, object]] = {}
    options: dict[str, dict[str, object]] = {}
    for key, item in value.items():
        prefix = _STATE if key.startswith(_STATE) else _GROUPS
        fqn, _, name = key.removeprefix(prefix).rpartition(".")
        if not fqn:
            return None
        (state if prefix == _STATE else options).setdefault(fqn, {})[name] = item
    if not options:  # every group has options; a model may have one module, called `state`
        return None
    groups: dict[tuple[tuple[str, str], ...], dict[str, object]] = {}
    for fqn, chosen in options.items():
        alike = tuple((name, _text(item)) for name, item in sorted(chosen.items()))
        group = groups.setdefault(alike, {**chosen, "params": []})
        members = group["params"]
        assert isinstance(members, list)
        members.append(fqn)
    return {"state": state, "param_groups": list(groups.values())}


def _text(value: object) -> str:
    return digest.of_tensor(value).hex() if is_tensor(value) else repr(value)
