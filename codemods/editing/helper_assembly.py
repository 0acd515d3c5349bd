"""Joins the parts of a helper module: only what is used, imports in order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codemods.editing import helper_text as part
from codemods.editing.helper_draft import Draft
from codemods.editing.helper_improvement_text import IMPROVEMENT_HEADER, IMPROVEMENT_PARTS
from codemods.editing.helper_layout import Style, laid_out
from codemods.editing.helper_parts import GIVEN_TO, STATE_DICT_PARTS, TYPE_OF, with_what_they_need
from codemods.editing.helper_policy_text import POLICY_PARTS, WRAP_POLICY
from codemods.editing.helper_sharding import mixed_precision, sharding
from codemods.editing.helper_training_text import TRAINING_HEADER, TRAINING_PARTS
from codemods.torch_names import PUBLIC_FROM, at_home

_ACCELERATOR = {
    "is_available": "is_available",
    "current_device_index": "current_device",
    "set_device_index": "set_device",
    "device_count": "device_count",
}
_PLAIN = Style()
_CHECKPOINTING = ("checkpoint", "create_selective_checkpoint_contexts")
_FLOAT8 = (
    "Float8LinearConfig",
    "convert_to_float8_training",
    "precompute_float8_dynamic_scale_for_fsdp",
)
_STATE_DICT_API = (
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
)


@dataclass(frozen=True, slots=True)
class Needs:
    """Which keywords of `shard_model` and which fields of `MixedPrecision` are in use.

    Attributes:
        keywords: `**` stands for keywords that are not known until run time.
        fields: `batch_norm` where the repository has such layers.
    """

    keywords: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()

    @staticmethod
    def of(marks: frozenset[str]) -> Needs:
        """From a finding's `needs`: keywords by name, fields as `field:<name>`."""
        fields = frozenset(m.removeprefix("field:") for m in marks if m.startswith("field:"))
        return Needs(frozenset(m for m in marks if not m.startswith("field:")), fields)

    def joined(self, other: Needs) -> Needs:
        """What either needs."""
        return Needs(self.keywords | other.keywords, self.fields | other.fields)


def assemble(names: frozenset[str], needs: Needs, style: Style = _PLAIN) -> str:
    """The text of a helper module that defines these names, and what they need."""
    return laid_out(_joined(names, needs, style), style)


def _joined(names: frozenset[str], needs: Needs, style: Style) -> str:
    names = with_what_they_need(names)
    draft = Draft(names, needs.keywords, needs.fields, style.torch)
    parts: list[str] = []
    types = set(names)
    if "shard_model" in names:
        types |= {t for k, t in TYPE_OF.items() if draft.has(k)}
    if "ShardingStrategy" in types:
        is_given = "shard_model" in names and draft.has("sharding_strategy")
        parts.append(part.SHARDING_STRATEGY + (part.BY_NAME if is_given else ""))
    if "BackwardPrefetch" in types:
        parts.append(part.BACKWARD_PREFETCH)
    if "CPUOffload" in types:
        parts.append(part.CPU_OFFLOAD)
    if "MixedPrecision" in types:
        parts.append(mixed_precision(draft))
    parts += [text for name, text in POLICY_PARTS.items() if name in names]
    if "shard_model" in names:
        parts += sharding(draft)
    for name, text in (*IMPROVEMENT_PARTS.items(), *TRAINING_PARTS.items(), *STATE_DICT_PARTS.items()):
        if name in names:
            parts.append(text + (part.BY_NAME if GIVEN_TO.get(name) in names else ""))
    text = _for_torch("\n\n".join(parts), style.torch)
    needs_policy = "WrapPolicy" in re.sub(r"ModuleWrapPolicy", "", text)
    lead = f"{WRAP_POLICY}\n\n" if needs_policy else "\n"
    header = (
        part.HEADER if names - {*IMPROVEMENT_PARTS, *TRAINING_PARTS, *STATE_DICT_PARTS} else TRAINING_HEADER
    )
    header = header if names - IMPROVEMENT_PARTS.keys() else IMPROVEMENT_HEADER
    future = "from __future__ import annotations\n\n" if style.python < (3, 10) else ""
    return f"{header}\n{future}{_imports(lead + text, style)}\n{lead}{text}"


def _line(source: str, names: list[str]) -> str:
    """An import statement as a formatter of 88 columns leaves it."""
    line = f"from {source} import {', '.join(names)}"
    return (
        line if len(line) <= 88 else f"from {source} import (\n" + "".join(f"    {n},\n" for n in names) + ")"
    )


def _for_torch(text: str, torch: tuple[int, int]) -> str:
    """`torch.accelerator` is new in torch 2.6; FSDP2 itself knew CUDA only before."""
    if torch >= PUBLIC_FROM:
        return text
    text = text.replace(
        "torch.device(torch.accelerator.current_device_index())",
        'torch.device("cuda", torch.cuda.current_device())',
    )
    for new, old in _ACCELERATOR.items():
        text = text.replace(f"torch.accelerator.{new}(", f"torch.cuda.{old}(")
    return text


def _imports(text: str, style: Style) -> str:
    """Exactly the imports the text uses; before Python 3.9 `collections.abc` has no subscripts."""
    plain = [f"import {m}" for m in ("contextlib", "enum", "functools", "math") if f"{m}." in text]
    stdlib = []
    collected = [n for n in ("Counter", "deque") if f"{n}(" in text]
    if collected:
        stdlib.append(f"from collections import {', '.join(collected)}")
    abc = [n for n in ("Callable", "Iterable", "Iterator", "Mapping", "Sequence") if f"{n}[" in text]
    if abc and style.python >= (3, 9):
        stdlib.append(f"from collections.abc import {', '.join(abc)}")
    if "@dataclass" in text:
        stdlib.append(f"from dataclasses import dataclass{', field' if 'field(' in text else ''}")
    typing = ["Any"] if re.search(r"\bAny\b", text) else []
    typing += abc if style.python < (3, 9) else []
    if typing:
        stdlib.append(f"from typing import {', '.join(typing)}")
    if "WeakKeyDictionary(" in text:
        stdlib.append("from weakref import WeakKeyDictionary")
    plain_third = ["import torch"] if "torch." in text else []
    if "dist." in text:
        plain_third.append("import torch.distributed as dist")
    if "dcp." in text:
        plain_third.append("import torch.distributed.checkpoint as dcp")
    third = ["from torch import nn"] if "nn." in text else []
    if "ProcessGroup" in text:
        third.append("from torch.distributed import ProcessGroup")
    again = [n for n in _CHECKPOINTING if re.search(rf"\b{n},", text)]
    if again:
        third.append(_line("torch.utils.checkpoint", again))
    if "register_optimizer_step_post_hook(" in text:
        third.append("from torch.optim.optimizer import register_optimizer_step_post_hook")
        third.append(_line("torchao.float8", list(_FLOAT8)))
    saving = [n for n in _STATE_DICT_API if re.search(rf"\b{n}\(", text)]
    if saving:
        third.append(_line("torch.distributed.checkpoint.state_dict", saving))
    if "StorageReader" in text:
        third.append("from torch.distributed.checkpoint.storage import StorageReader")
    mesh = [n for n in ("DeviceMesh", "init_device_mesh") if n in text]
    if mesh:
        third.append(_line("torch.distributed.device_mesh", mesh))
    fsdp = [n for n in ("CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy") if n in text]
    fsdp += ["fully_shard"] if "fully_shard(" in text else []
    if fsdp:
        third.append(
            _line(at_home("torch.distributed.fsdp.fully_shard", style.torch).rpartition(".")[0], fsdp)
        )
    tensors = [n for n in ("DTensor", "Replicate", "distribute_tensor") if re.search(rf"\b{n}\b", text)]
    if tensors:
        third.append(
            _line(at_home("torch.distributed.tensor.DTensor", style.torch).rpartition(".")[0], tensors)
        )
    third.sort(key=lambda line: line.split()[1])
    groups = ["\n".join([*plain, *stdlib]), "\n".join([*plain_third, *third])]
    return "\n\n".join(g for g in groups if g) + "\n"
