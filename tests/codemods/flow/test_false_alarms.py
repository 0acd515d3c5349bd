"""Kinds of false alarm that were seen on public trainers: nothing is said at the marked line (`# <-`)."""

from __future__ import annotations

import textwrap

import pytest
from programs import Program, found_at

_HEAD = """\
import contextlib, copy, logging, pickle, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""

SILENT = {
    "overridden where the model is sharded": """
        class Trainer:
            def __init__(self, policy):
                self.policy = policy
            def clip(self):
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)  # <-
        class Sharded(Trainer):
            def __init__(self, policy):
                super().__init__(policy)
                self.policy = FSDP(policy)
            def clip(self):
                self.policy.clip_grad_norm_(1.0)
    """,
    "before the wrap, though a static method is called later": """
        def main(model):
            model = model.cuda()
            count = sum(p.numel() for p in model.parameters())  # <-
            model = FSDP(model)
            with FSDP.summon_full_params(model):
                pass
    """,
    "before a wrap that not every run makes, though a static method is called later": """
        model = Net()
        model.load_state_dict(torch.load("before.pt"))  # <-
        if use_fsdp:
            model = FSDP(model)
        for step in range(100):
            with FSDP.summon_full_params(model):
                pass
    """,
    "before the helper of an earlier run shards, in another branch, though a static method is left": """
        from fsdp2_sharding import shard_model
        def build(module, engine):
            if engine == "fsdp":
                module = shard_model(module)
            else:
                state = module.state_dict()  # <-
                apply_fsdp2(module, state)
            if fsdp_version(module) == 1:
                FSDP.set_state_dict_type(module, kind)
            return module
    """,
    "before an earlier run shards in place, though a static method is left": """
        from torch.distributed.fsdp import fully_shard
        def main(model):
            model.load_state_dict(torch.load("before.pt"))  # <-
            fully_shard(model)
            FSDP.set_state_dict_type(model, kind)
    """,
    "an optimizer of a function's groups, beside a list that the wrap is given": """
        def groups(net):
            kept = []
            for p in net.parameters():
                kept.append(p)
            return [{"params": kept}]
        frozen = [p for p in model.parameters() if not p.requires_grad]
        model = FSDP(model, ignored_states=frozen)
        param_groups = groups(model)
        optimizer = torch.optim.AdamW(param_groups, foreach=False)  # <-
    """,
    "another call of a function that gives its argument back": """
        def cast(net, x):
            net = net.half()
            return net, x
        sharded, _ = cast(FSDP(net), x)
        plain, _ = cast(other, x)
        ema = copy.deepcopy(plain)  # <-
    """,
    "another call, two functions deep": """
        def inner(net):
            return net
        def outer(net):
            return inner(net)
        sharded = outer(FSDP(net))
        ema = copy.deepcopy(outer(other))  # <-
    """,
    "a step within a block that is not about synchronisation": """
        model = FSDP(model)
        optimizer = torch.optim.AdamW(model.parameters())
        with profiler:
            for i, batch in enumerate(batches):
                context = model.no_sync() if i % 4 else contextlib.nullcontext()
                with context:
                    model(batch).backward()
                optimizer.step()
                optimizer.zero_grad()  # <-
    """,
    "an average of one sharded model over another": """
        model, average = FSDP(model), FSDP(average)
        for a, p in zip(average.parameters(), model.parameters()):
            a.copy_(torch.lerp(a.detach(), p.detach(), 0.1))  # <-
    """,
    "a logger of FSDP1's modules": """
        model = FSDP(model)
        logging.getLogger("torch.distributed.fsdp._optim_utils").disabled = True  # <-
    """,
    "the same name in another class": """
        class Holder:
            def __init__(self):
                self.model = FSDP(net)
        class Other:
            def __init__(self):
                self.model = nn.Linear(1, 1)
            def save(self):
                torch.save(self.model.state_dict(), "f")  # <-
    """,
    "a sibling class": """
        class Base:
            model = None
        class One(Base):
            def __init__(self):
                self.model = FSDP(net)
        class Two(Base):
            def __init__(self):
                self.model = net
            def save(self):
                torch.save(self.model.state_dict(), "f")  # <-
    """,
    "another item of the dict": """
        models = {"actor": FSDP(net), "tokenizer": tokenizer}
        torch.save(models["tokenizer"].state_dict(), "f")  # <-
    """,
    "the other element of the tuple": """
        def build():
            return FSDP(net), scheduler
        model, scheduler = build()
        torch.save(scheduler.state_dict(), "f")  # <-
    """,
    "the class of FSDP1's wrapper itself": """
        model = FSDP(model)
        if type(model) is Engine:  # <-
            pass
    """,
    "something is pickled that is a sharded model at times": """
        def dump(thing):
            pickle.dump(thing, file)  # <-
        dump(FSDP(net))
        dump(numbers)
    """,
    "this rank's part and the whole, asked for by name": """
        model = FSDP(model)
        for p in model.parameters():
            print(p.to_local().norm(), p.full_tensor().sum())  # <-
    """,
    "this rank's part is written": """
        model = FSDP(model)
        for name, p in model.named_parameters():
            p._local_tensor.copy_(saved[0])  # <-
    """,
    "a process group with a backend for the CPU": """
        dist.init_process_group(f"cpu:gloo,{device}:{backend}")  # <-
        model = FSDP(model, cpu_offload=CPUOffload(offload_params=True))
    """,
    "the old name in the branch that does not wrap": """
        def shard(model, kind):
            if kind == "fsdp":
                sharded = FSDP(model)
            elif kind == "fsdp2":
                state = model.state_dict()  # <-
                sharded = apply(model, state)
            return sharded
    """,
    "a private name that the module defines anew": """
        from torch.distributed.fsdp._common_utils import _get_module_fsdp_state
        model = FSDP(model)
        def _get_module_fsdp_state(module):
            return module.state
        def group_of(module):
            return _get_module_fsdp_state(module)  # <-
    """,
    "the output of the model": """
        model = FSDP(model)
        output = model(x)
        output.forward(x)  # <-
    """,
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said(name: str) -> None:
    text = _HEAD + textwrap.dedent(SILENT[name])
    line = next(i for i, one in enumerate(text.splitlines(), start=1) if one.endswith("# <-"))
    assert found_at(Program({"main.py": text}, "main.py", line)).get(("main.py", line), set()) == set()


def test_the_other_calls_are_still_found() -> None:
    text = _HEAD + textwrap.dedent(SILENT["another call, two functions deep"]).replace(
        "other)", "FSDP(other))"
    )
    line = next(i for i, one in enumerate(text.splitlines(), start=1) if one.endswith("# <-"))
    assert "FM510" in found_at(Program({"main.py": text}, "main.py", line))["main.py", line]
