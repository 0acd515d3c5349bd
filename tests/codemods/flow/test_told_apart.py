"""Kinds of false alarm beside the true place of the same kind: what a mark says is all that is said there.

`# <- FM402` wants that code at its line, `# <- nothing` wants none.
"""

from __future__ import annotations

import re
import textwrap

import pytest
from programs import project_of

from codemods.outcomes import decide
from codemods.plain_tests import is_one_process
from codemods.plan import find_all

_HEAD = """\
import contextlib, copy, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""

KINDS: dict[str, dict[str, str]] = {
    "a scheduler out of one list with models": {
        "main.py": """
            def prepare(*given):
                return [FSDP(one) if isinstance(one, nn.Module) else one for one in given]
            model, optimizer, lr_scheduler = prepare(model, optimizer, lr_scheduler)
            torch.save(model.state_dict(), "m")  # <- FM402
            torch.save(lr_scheduler.state_dict(), "s")  # <- nothing
            lr_scheduler.load_state_dict(torch.load("s"))  # <- nothing
            model.load_state_dict(torch.load("m"))  # <- FM403
        """
    },
    "the branch where FSDP is not in use": {
        "main.py": """
            def clip(model, use_fsdp):
                if use_fsdp:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- FM302
                else:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- nothing
            def copied(model):
                return copy.deepcopy(model)  # <- FM510
            def exported(model):
                if is_model_fsdp(model):
                    raise ValueError("not for sharded models")
                return copy.deepcopy(model)  # <- nothing
            def cast(model, use_fsdp2):
                if use_fsdp2:
                    return model
                return copy.deepcopy(model)  # <- FM510
            for net in (FSDP(Net()), Net()):
                clip(net, True), copied(net), exported(net), cast(net, False)
        """
    },
    "the branch for another engine": {
        "main.py": """
            def saved(model, kind):
                if kind == Kind.DEEPSPEED:
                    return model.state_dict()  # <- nothing
                return model.state_dict()  # <- FM402
            for net in (FSDP(Net()), Net()):
                saved(net, kind)
        """
    },
    "a parameter that is said to be wrapped by something else": {
        "main.py": """
            from torch.nn.parallel import DistributedDataParallel
            def hook_ddp(model: DistributedDataParallel):
                model.register_comm_hook(None, hook)  # <- nothing
            def hook_any(model: nn.Module):
                model.register_comm_hook(None, hook)  # <- FM309
            for net in (FSDP(Net()), DistributedDataParallel(Net())):
                hook_ddp(net), hook_any(net)
        """
    },
    "a test that does not ask for FSDP": {
        "tests/test_plain.py": """
            from trainer import trained
            def test_copies():
                copy.deepcopy(trained(Net(), "ddp"))  # <- nothing
        """,
        "tests/test_sharded.py": """
            from trainer import trained
            def test_copies():
                copy.deepcopy(trained(Net(), "fsdp"))  # <- FM510
        """,
        "trainer.py": """
            def trained(model, kind):
                return FSDP(model) if kind == "full" else model
        """,
    },
    "a name that is looked up": {
        "main.py": """
            model = FSDP(Net())
            for name, p in model.named_parameters():
                if name in kept:  # <- nothing
                    kept[name] = p
            for name, p in model.named_parameters():
                if "bias" in name:  # <- FM509
                    p.weight_decay = 0.0
            for name, p in model.named_parameters():
                if "_fsdp_wrapped_module" in name:  # <- FM513
                    name = name.replace("_fsdp_wrapped_module.", "")
        """
    },
    "the exact class of what is no unit": {
        "main.py": """
            def prepare(*given):
                return [part for one in given for part in FSDP(one).modules()]
            model, optimizer = prepare(model, optimizer)
            for module in FSDP(Net()).modules():
                if type(module) is Block:  # <- FM508
                    pass
                if module.__class__.__name__ == "Linear4bit":  # <- nothing
                    pass
                if type(module) is DeepSpeedEngine:  # <- nothing
                    pass
        """
    },
    "names that Sphinx is told about": {
        "conf.py": """
            nitpick_ignore = [("py:class", "torch.distributed.fsdp.wrap.ModuleWrapPolicy")]  # <- nothing
            made = load("torch.distributed.fsdp.wrap.ModuleWrapPolicy")  # <- FM642
            model = FSDP(Net())
        """
    },
    "a setting that is handed on": {
        "main.py": """
            from transformers import AutoModel
            class Base:
                def build(self, name, load_in_8bit=False):
                    return AutoModel.from_pretrained(name, load_in_8bit=load_in_8bit)  # <- FM525
            model = FSDP(Base().build("m"))
        """,
        "heir.py": """
            from main import Base
            class Heir(Base):
                def made(self, load_in_8bit=False):
                    return self.build("n", load_in_8bit=load_in_8bit)  # <- nothing
            sharded = FSDP(Heir().made())
        """,
    },
    "a state dict that both stacks are asked for": {
        "main.py": """
            from torch.distributed.fsdp import FSDPModule, fully_shard
            def fsdp_version(model):
                return 1 if isinstance(model, FSDP) else 2 if isinstance(model, FSDPModule) else 0
            def context(model, kind, config):
                if fsdp_version(model) == 1:
                    return FSDP.state_dict_type(model, kind, config)  # <- FM401
                return contextlib.nullcontext()
            def save(model, kind, config):
                with context(model, kind, config):
                    torch.save(model.state_dict(), "f")  # <- nothing
            def gather(model, kind, config):
                if fsdp_version(model) == 1:
                    with context(model, kind, config):
                        return model.state_dict()  # <- FM402
            def shard(model, strategy):
                if strategy == "fsdp":
                    return FSDP(model)
                return fully_shard(model)
            model = shard(Net(), "fsdp")
            save(model, kind, config), gather(model, kind, config)
        """
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_false_place_is_silent_and_the_true_one_is_not(kind: str) -> None:
    files = {path: _text(path, text) for path, text in KINDS[kind].items()}
    reported = decide(project := project_of(files), find_all(project))
    found: dict[tuple[str, int], set[str]] = {}
    for item in reported:
        found.setdefault((item.finding.place.path, item.finding.place.line), set()).add(item.finding.code)
    wanted = dict(_marks(files))
    assert {place: found.get(place, set()) for place in wanted} == wanted


def _text(path: str, text: str) -> str:
    head = _HEAD
    if path == "tests/test_plain.py":  # a test that does not speak of FSDP does not import it
        head = "import copy\n"
    return head + textwrap.dedent(text)


def _marks(files: dict[str, str]) -> list[tuple[tuple[str, int], set[str]]]:
    found = []
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if told := re.search(r"# <- (\w+)$", line):
                found.append(((path, number), {told.group(1)} - {"nothing"}))
    return found


def test_one_line_is_said_once_for_each_reason() -> None:
    """`unit._handle.flat_param` is one thing to replace, and so are two of a kind in one line."""
    text = textwrap.dedent("""
        a, b = FSDP(Net()), FSDP(Net())
        mean = a._handle.flat_param.data + b._handle.flat_param.data
        pair = a._has_params and a.sharding_strategy
    """)
    project = project_of({"main.py": _HEAD + text})
    found = [item.finding for item in decide(project, find_all(project))]
    at = {line: [f.message for f in found if f.place.line == line] for line in (8, 9)}
    assert at[8] == ["`flat_param` is private to FSDP1 and does not exist"]
    assert len(at[9]) == 2


@pytest.mark.parametrize(
    "code", ["FSDP", "x = 1", "notebook_launcher(main, ())"], ids=["speaks", "one", "launches"]
)
def test_a_notebook_is_one_process_unless_it_starts_others(code: str) -> None:
    text = f"# [fsdp-migrate: code of cell 1]\n{code}\n"
    project = project_of({"a.ipynb": text, "a.py": "x = 1\n"})
    assert is_one_process(project.modules["a.ipynb"]) is (code == "x = 1")
    assert not is_one_process(project.modules["a.py"])
