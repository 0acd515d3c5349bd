"""Files whose models nobody shards. Pure."""

from __future__ import annotations

import re

from codemods.analysis.module import Module

_STARTS = re.compile(r"fsdp(?!-migrate)|launch|torchrun|mp\.spawn|init_process_group", re.IGNORECASE)
_TRACES = re.compile(r"\b(?:symbolic_trace|prepare_fx|convert_fx)\(")
_OTHER_ENGINES = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:megatron|deepspeed)\b", re.MULTILINE)

_TESTS = frozenset({"test", "tests", "test_utils"})


def is_plain_test(module: Module) -> bool:
    """Whether a file is a test that does not speak of FSDP."""
    *folders, name = module.path.split("/")
    is_test = name.startswith("test_") or bool(_TESTS & set(folders))
    return is_test and not module.says_fsdp


def is_of_other_engine(module: Module) -> bool:
    """Whether a file is about Megatron or DeepSpeed, or imports it, and does not speak of FSDP."""
    if module.says_fsdp:
        return False
    is_named = any(engine in module.path.lower() for engine in ("megatron", "deepspeed"))
    return is_named or _OTHER_ENGINES.search(module.text) is not None


def is_of_traced_models(module: Module) -> bool:
    """Whether a file traces models with FX, which no sharded model can be, and does not speak of FSDP."""
    return not module.says_fsdp and _TRACES.search(module.text) is not None


def is_one_process(module: Module) -> bool:
    """Whether a file is a notebook that starts no other processes: what runs in it is not sharded."""
    return module.path.endswith(".ipynb") and _STARTS.search(module.text) is None


def is_test_path(path: str) -> bool:
    """Whether a file is a test, by where it stands and what it is called."""
    *folders, name = path.split("/")
    return name.startswith("test_") or bool(_TESTS & set(folders))
