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

_ALONE = ("\nimport megatron", "\nimport deepspeed", "\nimport torch.distributed as dist", "\nimport copy\n")

KINDS: dict[str, str | dict[str, str]] = {
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
    "a module whose parts are sharded later, elsewhere, or never": {
        "pair.py": """
            class Pair(nn.Module):
                def __init__(self, part):
                    super().__init__()
                    self.part = part
                def shard(self):
                    self.part = FSDP(self.part)
            class Plain(nn.Module):
                def __init__(self, part):
                    super().__init__()
                    self.part = part
        """,
        "main.py": """
            from pair import Pair, Plain
            def save(pair, path):
                torch.save(pair.state_dict(), path)  # <- FM402
            def train(part, path):
                pair, plain = Pair(part), Plain(part)
                pair.load_state_dict(torch.load(path))  # <- nothing
                plain.load_state_dict(torch.load(path))  # <- nothing
                pair.shard()
                for step in range(2):
                    save(pair, path)
                pair.load_state_dict(torch.load(path))  # <- FM403
        """,
        "evaluate.py": """
            from pair import Pair
            pair = Pair(part)
            pair.load_state_dict(torch.load(path))  # <- nothing
        """,
    },
    "flat parameters, streams and strategies of units that a function gives": {
        "main.py": """
            class Settings:
                params = ()
                sharding_strategy = None
            def units(model):
                return FSDP.fsdp_modules(model)
            def average(model, teacher, settings):
                print(settings.params, settings.sharding_strategy)  # <- nothing
                for one, other in zip(units(model), units(teacher)):
                    print(one.params, one.sharding_strategy)  # <- FM310
                    free(other)
            def free(unit):
                return unit.sharding_strategy  # <- FM310
            class Meta(nn.Module):
                def join(self):
                    self.student.head._streams = self.teacher.head._streams  # <- FM310
            average(FSDP(nets[0]), FSDP(nets[1]), Settings())
        """
    },
    "items of a dict that a loop shards one by one": {
        "main.py": """
            def prepare(nets, others):
                for k, v in nets.items():
                    others[k].load_state_dict(nets[k].state_dict())  # <- nothing
                    nets[k] = FSDP(nets[k])
                    others[k] = FSDP(others[k])
                    torch.save(nets[k].state_dict(), k)  # <- FM402
                for k in nets:
                    torch.save(nets[k].state_dict(), k)  # <- FM402
            def again(nets, k):
                for step in range(2):
                    torch.save(nets[k].state_dict(), k)  # <- FM402
                    nets[k] = FSDP(nets[k])
        """
    },
    "parameters of each module by itself": {
        "main.py": """
            def spread(model):
                modules = model.named_modules()
                for prefix, module in modules:
                    members = dict(module._parameters.items())
                    for name, value in members.items():
                        dist.broadcast(value, src=0)  # <- FM514
            def spread_some(model):
                for module in model.modules():
                    for value in module._parameters.values():
                        dist.broadcast(value, src=0)  # <- FM514
            def spread_plain(plain):
                for module in plain.modules():
                    for value in module._parameters.values():
                        dist.broadcast(value, src=0)  # <- nothing
            model = FSDP(Net())
            spread(model), spread_some(model), spread_plain(Net())
        """
    },
    "tuples out of two lists at a time": {
        "main.py": """
            def make(model):
                settings = dict()
                return settings, FSDP(model)
            made = []
            for model in models:
                settings, model = make(model)
                made.append((settings, model))
            for pair, count in zip(made, counts):
                settings, model = pair
                print(settings.world_size)  # <- nothing
                print(model.world_size)  # <- FM310
        """
    },
    "a seed of the project's own, common to all ranks while the model is built": {
        "main.py": """
            def random_seed(seed=42, rank=0):
                torch.manual_seed(seed + rank)
            def create(width):
                return nn.Linear(width, width)
            def main(args):
                random_seed(args.seed, 0)
                model = create(args.width)
                random_seed(args.seed, args.rank)
                return FSDP(model)  # <- FM101 FM512
        """
    },
    "a seed of the project's own, set by rank before the model is built": {
        "main.py": """
            def random_seed(seed=42, rank=0):
                torch.manual_seed(seed + rank)
            def create(width):
                return nn.Linear(width, width)
            def main(args):
                random_seed(args.seed, args.rank)
                model = create(args.width)
                return FSDP(model)  # <- FM101 FM512 FM526
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
    "the model that is asked whether it is sharded": """
        class Holder:
            def __init__(self):
                self.model = FSDP(Net())
            def generated(self, x):
                if is_model_fsdp(self.model):
                    with FSDP.summon_full_params(self.model, recurse=False):
                        return self.model.generate(x)  # <- FM311
                else:
                    return self.model.generate(x)  # <- nothing
    """,
    "seeds of ranks before a model that is read": """
        torch.manual_seed(dist.get_rank())
        read = FSDP(Net.from_pretrained("x"))  # <- FM101 FM512
        drawn = FSDP(Net())  # <- FM101 FM526
    """,
    "an optimizer's state where heirs that shard save by themselves": """
        class Trainer:
            def __init__(self, policy):
                self.policy = policy
            def train(self):
                self.optimizer = torch.optim.AdamW(self.policy.parameters())
            def save(self):
                torch.save(self.policy.state_dict(), "p")
                torch.save(self.optimizer.state_dict(), "o")  # <- nothing
        class Sharded(Trainer):
            def __init__(self, policy):
                super().__init__(policy)
                self.policy = FSDP(policy)
            def save(self):
                torch.save(self.optimizer.state_dict(), "o")  # <- FM409
        Trainer(Net()).save(), Sharded(Net()).save()
    """,
    "a branch where the model is not wrapped": """
        class Trainer:
            def __init__(self, config, model):
                self.config, self.enabled = config, config.enabled
                self.model = model
                if config.fsdp:
                    self.model = FSDP(model)
            def step(self):
                if not self.config.fsdp:
                    with self.model.no_sync():  # <- nothing
                        pass
                    self.model.clip_grad_norm_(1.0)  # <- nothing
                    self.model.save_pretrained("x")  # <- nothing
                    return [p.grad.norm() for p in self.model.parameters()]  # <- nothing
                self.model.clip_grad_norm_(1.0)  # <- FM301
                self.model.save_pretrained("x")  # <- FM402
                return [p.grad.norm() for p in self.model.parameters()]  # <- FM514
        Trainer(config, Net()).step()
    """,
    "an attribute of one name in another class": """
        class Wrapping:
            def __init__(self, model):
                self.enabled = True
                self.model = FSDP(model) if self.enabled else model
            def save(self):
                if not self.enabled:
                    torch.save(self.model.state_dict(), "w")  # <- nothing
        class Saving:
            def __init__(self, model):
                self.enabled = False
                self.model = model
            def save(self):
                if not self.enabled:
                    torch.save(self.model.state_dict(), "s")  # <- FM402
        wrapping = Wrapping(Net())
        wrapping.save(), Saving(wrapping.model).save()
    """,
    "the parameters of a model in one list with an optimizer": """
        sharded = FSDP(Net())
        for one in (Net(), torch.optim.AdamW(sharded.parameters())):
            print([p.norm() for p in one.parameters()])  # <- nothing
            print([p.grad.norm() for group in one.param_groups for p in group["params"]])  # <- FM514
    """,
    "gradients of an optimizer where the model is in DistributedDataParallel": """
        class Trainer:
            def __init__(self, model, use_fsdp):
                self.model = FSDP(model) if use_fsdp else DDP(model)
                self.optimizer = torch.optim.AdamW(self.model.parameters())
            def reduced(self):
                if not isinstance(self.model, DDP):
                    return
                for group in self.optimizer.param_groups:
                    for p in group["params"]:
                        dist.all_reduce(p.grad)  # <- nothing
            def norms(self):
                for group in self.optimizer.param_groups:
                    print([p.grad.norm() for p in group["params"]])  # <- FM514
        Trainer(Net(), flag).reduced()
    """,
    "shapes that are shown": """
        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        for group in optimizer.param_groups:
            for p in group["params"]:
                print(f"{p.shape}")  # <- nothing
                group["decays"] = p.ndim > 1  # <- FM509
    """,
    "functions for models of FSDP2": """
        def fsdp2_load_full_state_dict(model, state):
            shards = model.state_dict()  # <- nothing
            return shards, [p.grad.norm() for p in model.parameters()]  # <- nothing
        def compare_fsdp1_with_fsdp2(model):
            return model.state_dict()  # <- FM402
        def fully_sharded_state(model):
            return model.state_dict()  # <- FM402
        model = FSDP(Net())
        fsdp2_load_full_state_dict(model, {}), compare_fsdp1_with_fsdp2(model), fully_sharded_state(model)
    """,
    "a copy whose failure is caught": """
        def copied(model):
            try:
                return copy.deepcopy(model)  # <- nothing
            except TypeError:
                return copy.deepcopy(model)  # <- FM510
        for net in (FSDP(Net()), Net()):
            copied(net)
    """,
    "models that are traced": {
        "main.py": """
            import traced
            for net in (FSDP(Net()), Net()):
                traced.plain(net), walked(net)
            def walked(model):
                return [m for m in model.modules() if type(m) is Block]  # <- FM508
        """,
        "traced.py": """
            import copy
            def plain(model):
                graph = torch.fx.symbolic_trace(model)
                return [m for m in model.modules() if type(m) is Block]  # <- nothing
        """,
    },
    "one rule by names in two lists": """
        model = FSDP(Net())
        groups = [
            {"params": [p for n, p in model.named_parameters() if "bias" in n]},  # <- FM509
            {"params": [p for n, p in model.named_parameters() if "bias" not in n]},  # <- nothing
        ]
        others = [p for n, p in model.named_parameters() if "norm" in n]  # <- FM509
    """,
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
            import copy
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
    "a state dict of DTensors": """
        from torch.distributed.tensor import distribute_tensor
        model = FSDP(Net())
        def load(whole):
            shards = {}
            for name, value in whole.items():
                shard = distribute_tensor(value, mesh)
                shards[name] = shard
            model.load_state_dict(shards, assign=True)  # <- nothing
            model.load_state_dict(whole, assign=True)  # <- FM403
    """,
    "the model compiled after its optimizer is built": """
        kinds = {"net": lambda model: FSDP(model, use_orig_params=True)}
        def main(model, kind, other):
            model = kinds[kind](model)
            optimizer = torch.optim.AdamW(model.parameters())  # <- nothing
            model = torch.compile(model)
            late = torch.optim.AdamW(other.parameters())  # <- FM504
            other = FSDP(other, use_orig_params=True)
        main(Net(), "net", Net())
    """,
    "schedulers and callbacks beside optimizers": """
        class Scheduler:
            def state_dict(self):
                return {}
        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        for thing in (optimizer, Scheduler()):
            torch.save(thing.state_dict(), "f")  # <- nothing
        for one_optimizer in (optimizer, Scheduler()):
            torch.save(one_optimizer.state_dict(), "f")  # <- FM409
    """,
    "a teacher that the optimizer does not train": """
        model, teacher = FSDP(Net()), FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        def step(x):
            model(x).backward()
            with torch.no_grad():
                teacher(x)  # <- nothing
            optimizer.step()
        def evaluated(x):
            model(x).backward()
            with torch.no_grad():
                model(x)  # <- FM522
            optimizer.step()
    """,
    "functions that register hooks": """
        model = FSDP(Net())
        def hooked(module):
            module.register_forward_hook(print)
        def started(module):
            nn.init.normal_(module.weight)
        model.apply(hooked)  # <- nothing
        model.apply(started)  # <- FM310
    """,
    "a loop that tells DTensors from tensors": """
        from torch.distributed.tensor import DTensor
        model = FSDP(Net())
        for p in model.parameters():
            if not isinstance(p, DTensor):
                p.data.copy_(kept)  # <- nothing
        for p in model.parameters():
            p.data.copy_(kept)  # <- FM514
    """,
    "FSDP2's own policy": """
        from torch.distributed.fsdp import fully_shard
        def shard(model):
            for module in model.modules():
                if module.__class__.__name__ in names:  # <- nothing
                    fully_shard(module)
        def counted(model):
            return [m for m in model.modules() if m.__class__.__name__ in names]  # <- FM508
        for net in (FSDP(Net()), Net()):
            shard(net), counted(net)
    """,
    "a model made for one process": """
        def build(world_size):
            return FSDP(Net()) if world_size > 1 else Net()
        single = build(world_size=1).train()
        torch.nn.utils.clip_grad_norm_(single.parameters(), 1.0)  # <- nothing
        several = build(world_size=count).train()
        torch.nn.utils.clip_grad_norm_(several.parameters(), 1.0)  # <- FM302
    """,
    "an attribute that is asked for and read": """
        def inner(model):
            if hasattr(model, "_fsdp_wrapped_module"):  # <- FM516
                return model._fsdp_wrapped_module  # <- FM516
            return model
        def is_wrapped(model):
            return hasattr(model, "_fsdp_wrapped_module")  # <- FM513
    """,
    "a trainer's settings for XLA": """
        tpu = {"fsdp": "full_shard", "fsdp_config": {"xla": True}}  # <- nothing
        gpu = {"fsdp": "full_shard", "fsdp_config": {"min_num_params": 1}}  # <- FM617
    """,
    "a library that asks the model for its state dict": """
        from safetensors.torch import save_model
        model = FSDP(Net())
        model.save_pretrained("out")  # <- FM402
        Net().save_pretrained("out")  # <- nothing
        model.save_pretrained("out", state_dict=whole)  # <- nothing
        save_model(model, "out")  # <- FM402
        save_model(Net(), "out")  # <- nothing
    """,
    "what is looked up by the exact class": """
        for module in FSDP(Net()).modules():
            HOOKS[type(module)](module)  # <- FM508
            HOOKS.get(module.__class__)  # <- FM508
            type(module).__name__.startswith("Block")  # <- FM508
            type(module).__name__.endswith("Block")  # <- nothing
        for module in Net().modules():
            HOOKS[type(module)](module)  # <- nothing
    """,
    "functions over lists of gradients": """
        model = FSDP(Net())
        grads = [p.grad for p in model.parameters()]
        norm = torch.nn.utils.get_total_norm(grads)  # <- FM514
        norms = torch._foreach_norm([p.grad for p in model.parameters()])  # <- FM514
        others = torch._foreach_norm([p.grad for p in Net().parameters()])  # <- nothing
        count = sum(p.nelement() for p in model.parameters())  # <- FM515
    """,
    "process groups of other programs": {
        "main.py": """
            import one, two, script, groups
            def trained(kind):
                return one.Worker() if kind else two.Worker()
        """,
        "one.py": """
            class Worker:
                def __init__(self):
                    dist.init_process_group(backend=name())  # <- FM113
                    self.model = FSDP(Net(), cpu_offload=CPUOffload(offload_params=True))
        """,
        "two.py": """
            import torch.distributed as dist
            class Worker:
                def __init__(self):
                    dist.init_process_group(backend=name())  # <- nothing
        """,
        "script.py": """
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            dist.init_process_group(backend=name())  # <- nothing
            model = DDP(net)
        """,
        "groups.py": """
            import torch.distributed as dist
            def start(backend=None):
                backend = backend or f"cpu:gloo,{device()}:{name()}"
                dist.init_process_group(backend=backend)  # <- nothing
            def started(backend):
                if backend == "xla":
                    dist.init_process_group(backend, init_method="xla://")  # <- nothing
                else:
                    dist.init_process_group(backend)  # <- FM113
        """,
    },
    "a file of another engine": {
        "main.py": """
            import engine
            for net in (FSDP(Net()), Net()):
                engine.count(net), count(net)
            def count(model):
                return sum(p.numel() for p in model.parameters())  # <- FM515
        """,
        "engine.py": """
            import megatron.core
            def count(model):
                return sum(p.numel() for p in model.parameters())  # <- nothing
        """,
    },
    "a file that speaks of another engine, and is only given what is sharded": {
        "main.py": """
            import engine
            model = FSDP(Net())
            engine.go(model), Net().half()  # <- nothing
        """,
        "engine.py": """
            import deepspeed
            def go(model):
                model.clip_grad_norm_(1.0)  # <- FM301
        """,
    },
    "an optimizer by a name that others have": """
        model = FSDP(Net())
        algo = torch.optim.AdamW(model.parameters())
        torch.save(algo.state_dict(), "optimizer.pt")  # <- FM409
        algo = Algorithm()
        torch.save(Algorithm().state_dict(), "algorithm.pt")  # <- nothing
    """,
    "a flag that the wrap turns over, and one that stays": {
        "main.py": """
            class Trainer:
                def __init__(self, model):
                    self.model, self.pending, self.use_it = model, True, True
                def step(self):
                    if self.pending:
                        self.model = FSDP(self.model)
                        self.pending = False
                    if not self.pending:
                        torch.save(self.model.state_dict(), "m")  # <- FM402
            class Other:
                def __init__(self, model):
                    self.model, self.use_it = model, True
                    if self.use_it:
                        self.model = FSDP(self.model)
                def save(self):
                    if not self.use_it:
                        torch.save(self.model.state_dict(), "m")  # <- nothing
                    torch.save(self.model.state_dict(), "m")  # <- FM402
        """
    },
    "a trainer whose file has settings of other kinds": {
        "main.py": """
            from transformers import BitsAndBytesConfig, Trainer, TrainingArguments
            args = TrainingArguments("out", fsdp="full_shard")
            quantised = BitsAndBytesConfig(load_in_4bit=True)
            trainer = Trainer(model, args)
            torch.save(trainer.model.state_dict(), "m")  # <- nothing
            trainer.train()
            torch.save(trainer.model.state_dict(), "m")  # <- FM402
        """
    },
    "lists of gradients that are joined as they are": {
        "main.py": """
            model = FSDP(Net())
            grads = [p.grad for p in model.parameters()]
            flat = torch.cat([g for g in grads])  # <- FM514
            rows = torch.cat([p.grad.view(p.grad.size(0), -1) for p in model.parameters()])  # <- FM514
            sizes = torch.stack([torch.tensor(1) for g in grads])  # <- nothing
        """
    },
    "parts with parameters, and parts without": {
        "main.py": """
            from torch.distributed.fsdp import ShardingStrategy
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.head = nn.Linear(2, 2)
                    self.body = nn.Sequential(nn.Linear(2, 2))
                    self.criterion = nn.CrossEntropyLoss()
                    self.norm = nn.LayerNorm(2)
            def run(x, y):
                net = FSDP(
                    Net(),
                    sharding_strategy=ShardingStrategy.NO_SHARD,
                    auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
                )
                net.criterion(x, y)  # <- nothing
                net.head(x)  # <- nothing
                net.body(x)  # <- nothing
                net.norm(x)  # <- FM313
        """
    },
    "an average of a model, which is no optimizer": """
        from torch.optim.swa_utils import AveragedModel
        class Average(AveragedModel):
            pass
        class Own(torch.optim.Optimizer):
            pass
        model = FSDP(Net())
        params = list(model.parameters())
        own = Own(params)
        average, other = Average(Net()), AveragedModel(Net(), avg_fn=len(params))
        torch.save(own.state_dict(), "o")  # <- FM409
        torch.save(average.state_dict(), "a")  # <- nothing
        torch.save(other.state_dict(), "a")  # <- nothing
        net = Net()
        held = Average(net, params=net.parameters())  # <- nothing
        built = Own(list(net.parameters()))  # <- FM504
        wrapped = FSDP(net)
    """,
    "optimizers out of one list with models, by their short names": {
        "main.py": """
            def prepared(*given):
                return [FSDP(one) if isinstance(one, nn.Module) else one for one in given]
            made = prepared(Net(), torch.optim.AdamW(Net().parameters()), loader)
            for opt in made:
                torch.save(opt.state_dict(), "o")  # <- nothing
            for model in made:
                torch.save(model.state_dict(), "m")  # <- FM402
            train_dl, optimizers, models = made[2], made, made
            torch.save(optimizers[0].state_dict(), "o")  # <- nothing
            torch.save(models[0].state_dict(), "m")  # <- FM402
            torch.save(train_dl.state_dict(), "d")  # <- nothing
        """
    },
    "another engine's file that is given all kinds of models": {
        "main.py": """
            import counting, engine
            class Plain(nn.Module):
                pass
            def start(model: FSDP):
                counting.count(model), engine.count(model)
            for one in (FSDP(Net()), Plain()):
                start(one)
        """,
        "counting.py": """
            import copy
            def count(model):
                return sum(p.numel() for p in model.parameters())  # <- FM515
        """,
        "engine.py": """
            import megatron.core
            def count(model):
                return sum(p.numel() for p in model.parameters())  # <- nothing
        """,
    },
    "a function that leaves unless it is given FSDP's wrapper": """
        def strict(model):
            if not isinstance(model, FSDP):  # <- FM501
                raise TypeError
            torch.save(model.state_dict(), "m")  # <- FM402
            model = Net()
            torch.save(model.state_dict(), "m")  # <- nothing
        def loose(model):
            if not isinstance(model, FSDP):  # <- FM501
                print("plain")
            torch.save(model.state_dict(), "m")  # <- nothing
    """,
    "what Accelerate prepares together, and what apart": {
        "main.py": """
            from accelerate import Accelerator, FullyShardedDataParallelPlugin
            accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
            model, optimizer = accelerator.prepare(model, optimizer)  # <- nothing
            model, first = accelerator.prepare(model, torch.optim.SGD(model.parameters()))  # <- nothing
            model = accelerator.prepare(model)  # <- FM624
            model, loader, lr_scheduler = accelerator.prepare(model, loader, lr_scheduler)  # <- FM624
            model, thing = accelerator.prepare(model, thing)  # <- nothing
            optimizer, loader = accelerator.prepare(optimizer, loader)  # <- FM624
            optimizer = accelerator.prepare(optimizer)  # <- FM624
            loader, scheduler = accelerator.prepare(loader, scheduler)  # <- nothing
            loader = accelerator.prepare(loader)  # <- nothing
            model, teacher_model, optimizer = accelerator.prepare(model, teacher_model, optimizer)  # <- FM624
            model = accelerator.prepare_model(model)  # <- FM624
            model = accelerator.prepare_model(model, evaluation_mode=True)  # <- nothing
            model, optimizer = fabric.prepare(model, optimizer)
        """
    },
    "an optimizer that Accelerate gives back, beside a schedule": {
        "main.py": """
            from accelerate import Accelerator, FullyShardedDataParallelPlugin
            accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
            model = Net()
            optimizer = torch.optim.AdamW(model.parameters())
            torch.save(optimizer.state_dict(), "o")  # <- nothing
            model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
            torch.save(optimizer.state_dict(), "o")  # <- FM409
            torch.save(scheduler.state_dict(), "s")  # <- nothing
            norms = [p.grad.norm() for g in optimizer.param_groups for p in g["params"]]  # <- FM514
            rates = [g["lr"] for g in optimizer.param_groups]  # <- nothing
            other = torch.optim.AdamW(Net().parameters())
            torch.save(other.state_dict(), "o")  # <- nothing
        """
    },
    "the groups of an optimizer that are clipped": """
        from torch.nn.utils import clip_grad_norm_
        class Trainer:
            def __init__(self, use_fsdp):
                self.use_fsdp = use_fsdp
                self.model = Net()
                if use_fsdp:
                    self.model = FSDP(self.model)
                self.optimizer = torch.optim.AdamW(self.model.parameters())
                self.others = torch.optim.AdamW(Net().parameters())
            def step(self):
                for group in self.optimizer.param_groups:
                    clip_grad_norm_(group["params"], 1.0)  # <- FM302
                clip_grad_norm_([p for p in self.optimizer.param_groups[0]["params"]], 1.0)  # <- FM302
                clip_grad_norm_(self.others.param_groups[0]["params"], 1.0)  # <- nothing
                for p in self.optimizer.param_groups[0]["params"]:
                    clip_grad_norm_(p, 1.0)  # <- FM302
                for g in self.others.param_groups:
                    clip_grad_norm_(g["params"], 1.0)  # <- nothing
            def either(self):
                if self.use_fsdp:
                    self.model.clip_grad_norm_(1.0)  # <- FM301
                else:
                    clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)  # <- nothing
            def asked(self):
                if isinstance(self.model, FSDP):
                    self.model.clip_grad_norm_(1.0)  # <- FM301
                else:
                    clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)  # <- nothing
            def summoned(self):
                with FSDP.summon_full_params(self.model, with_grads=True):  # <- FM305
                    clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)  # <- nothing
                    clip_grad_norm_(self.model.parameters(), 1.0)  # <- nothing
        Trainer(True).step()
    """,
    "a sharding of the project's own, with FSDP1's names": {
        "own.py": """
            class Own(nn.Module):
                def __init__(self, module):
                    super().__init__()
                    self._fsdp_wrapped_module = module
                    self.flat_param = torch.cat([p.detach().view(-1) for p in module.parameters()])
                def forward(self, x):
                    return self._fsdp_wrapped_module(x)  # <- nothing
                def names(self):
                    names = [name for name, _ in self.named_parameters()]
                    return [name for name in names if "_fsdp_wrapped_module" not in name]  # <- nothing
        """,
        "main.py": """
            from own import Own
            def rotate(unit):
                unit.flat_param.data.copy_(unit.buffer)  # <- nothing
            def size(model):
                model = FSDP(model)
                return model.flat_param.numel()  # <- FM507
            rotate(Own(net))
        """,
    },
    "another mode than that in which the wrapping function is called": """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def shard(model):
            return FSDP(model)
        def replicate(model):
            return DDP(model)
        def save(model, args):
            if args.mode == "fsdp":
                torch.save(model.state_dict(), "m")  # <- FM402
            else:
                torch.save(model.module.state_dict(), "m")  # <- nothing
        def load(model, args):
            if args.mode == "ddp":
                model.module.load_state_dict(torch.load("m"))  # <- nothing
            elif args.mode == "other":
                model.load_state_dict(torch.load("m"))  # <- nothing
            if args.how == "ddp":
                model.load_state_dict(torch.load("m"))  # <- FM403
        def main(args):
            model = shard(net) if args.mode == "fsdp" else replicate(net)
            load(model, args)
            save(model, args)
        main(args)
    """,
    "a part of the model that is wrapped in a way which is not seen": """
        class Net(nn.Module):
            def forward(self, x):
                return x
        class Clipping(Net):
            def clip_grad_norm_(self, limit):
                return limit
        class Trainer:
            def __init__(self):
                self.net, self.other = Net(), Clipping()
                for name in ("net",):
                    setattr(self, name, FSDP(getattr(self, name)))
            def step(self):
                self.other.clip_grad_norm_(1.0)  # <- nothing
                return self.net.clip_grad_norm_(1.0)  # <- FM301
    """,
    "an heir of FSDP1's wrapper, with its names": """
        class Heir(FSDP):
            def __init__(self, module):
                super().__init__(module)
                self._fsdp_wrapped_module = module
        def inside(unit):
            return unit._fsdp_wrapped_module  # <- FM516
    """,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_false_place_is_silent_and_the_true_one_is_not(kind: str) -> None:
    told = KINDS[kind]
    texts = {"main.py": told} if isinstance(told, str) else told
    files = {path: _text(text) for path, text in texts.items()}
    reported = decide(project := project_of(files, on_demand=True), find_all(project))
    found: dict[tuple[str, int], set[str]] = {}
    for item in reported:
        found.setdefault((item.finding.place.path, item.finding.place.line), set()).add(item.finding.code)
    wanted = dict(_marks(files))
    assert {place: found.get(place, set()) for place in wanted} == wanted


def _text(text: str) -> str:
    """A file with its imports; one that imports torch itself, or is a plain test, does not speak of FSDP."""
    text = textwrap.dedent(text)
    return text if text.startswith(_ALONE) else _HEAD + text


def _marks(files: dict[str, str]) -> list[tuple[tuple[str, int], set[str]]]:
    found = []
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if told := re.search(r"# <- ([\w ]+)$", line):
                found.append(((path, number), set(told.group(1).split()) - {"nothing"}))
    return found


def test_a_private_name_from_two_of_torchs_modules_is_no_choice_between_stacks() -> None:
    text = textwrap.dedent("""
        try:
            from torch.distributed.fsdp._flat_param import FlatParamHandle
        except ImportError:
            from torch.distributed.fsdp.flat_param import FlatParamHandle
        model = FSDP(Net())
        kinds = (FlatParamHandle,)
    """)
    project = project_of({"main.py": _HEAD + text})
    said = [item.finding.message for item in decide(project, find_all(project))]
    assert not any("and stays" in message for message in said)
    assert any("FlatParamHandle` belongs to FSDP1" in message for message in said)


def test_axolotls_settings_away_from_a_call_are_axolotls() -> None:
    text = """
cfg = dict(a=1)
cfg.update({"base_model": "m", "micro_batch_size": 1, "fsdp": ["full_shard", "auto_wrap"]})
cfg.update({"num_train_epochs": 1, "fsdp": ["full_shard", "auto_wrap"]})
"""
    project = project_of({"main.py": _HEAD + text})
    first, second = (f.remedy for f in find_all(project) if f.code == "FM617")
    assert "axolotl" in first
    assert "`fsdp` True" in second
    project = project_of({"main.py": _HEAD + "from axolotl.utils.dict import DictDefault\n" + text})
    assert all("axolotl" in f.remedy for f in find_all(project) if f.code == "FM617")


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
