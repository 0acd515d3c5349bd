"""The parts that `random_programs` puts together: for each thing that trainers do, ways in which they do it.

`@Name` is a name of FSDP1, spelled as the program imports it; `M` the model, `O` its optimizer. `net` is the
model before it is wrapped, `config` the settings, `out` the folder for files, `rank` this rank.
"""

from __future__ import annotations

POLICY = {
    "": "",
    "class": "@ModuleWrapPolicy({Block})",
    "partial": "functools.partial(@transformer_auto_wrap_policy, transformer_layer_cls={Block})",
    "lambda": "functools.partial(@lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block))",
    "size": "functools.partial(@size_based_auto_wrap_policy, min_num_params=300)",
    "or": "functools.partial(@_or_policy, policies=["
    "functools.partial(@lambda_auto_wrap_policy, lambda_fn=lambda m: m is net.extra), "
    "functools.partial(@transformer_auto_wrap_policy, transformer_layer_cls={Block})])",
    "by hand": "",
}
STRATEGY = {
    "": "",
    "full": "@ShardingStrategy.FULL_SHARD",
    "grad": "@ShardingStrategy.SHARD_GRAD_OP",
    "none": "@ShardingStrategy.NO_SHARD",
    "by name": '@ShardingStrategy[config["strategy"]]',
    "getattr": 'getattr(@ShardingStrategy, config["strategy"])',
    "chosen": "@ShardingStrategy.FULL_SHARD if config['prefetch'] else @ShardingStrategy.SHARD_GRAD_OP",
}
PRECISION = {
    "": "",
    "bf16": "@MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
    "bf16 and fp32": "@MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
    "buffers": "@MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)",
    "reduce": "@MixedPrecision(reduce_dtype=torch.bfloat16)",
    "if asked": "@MixedPrecision(param_dtype=torch.bfloat16) if config['mixed'] else None",
}
EXTRA = {
    "": "",
    "prefetch": "forward_prefetch=True",
    "limit": "limit_all_gathers=True",
    "backward": "backward_prefetch=@BackwardPrefetch.BACKWARD_POST",
    "ignored": "ignored_modules=[net.extra]",
    "sync": "sync_module_states=True",
}
OPTIMIZER = {
    "adamw": "O = torch.optim.AdamW(P.parameters(), lr=0.01, weight_decay=0.1, eps=1e-3)",
    "sgd": "O = torch.optim.SGD(P.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)",
    "trainable": "O = torch.optim.AdamW([p for p in P.parameters() if p.requires_grad], lr=0.01, eps=1e-3)",
    "names": """\
decay = [p for n, p in P.named_parameters() if "bias" not in n]
rest = [p for n, p in P.named_parameters() if "bias" in n]
O = torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}], lr=0.01, eps=1e-3)""",
    "shapes": """\
decay = [p for p in P.parameters() if p.ndim >= 2]
rest = [p for p in P.parameters() if p.ndim < 2]
O = torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}], lr=0.01, eps=1e-3)""",
    "method": "O = P.configured(0.01)",
    "early": "O = torch.optim.AdamW(P.parameters(), lr=0.01, eps=1e-3)",
    "early list": "kept = list(P.parameters())\nO = torch.optim.SGD(kept, lr=0.1, momentum=0.9)",
    "early method": "O = P.configured(0.01)",
    "early groups": "O = torch.optim.AdamW(P.groups(), lr=0.01, eps=1e-3)",
}
"""`P` is the model, or `net` where the optimizer is built before the wrap."""

_PASS = "loss = loss_of(M(ids), targets) / 2\nloss.backward()"
_INSIDE = "    loss = loss_of(M(ids), targets) / 2\n    loss.backward()"
ACCUMULATE = {
    "": "loss = loss_of(M(ids), targets)\nloss.backward()",
    "forward": "loss = loss_of(M.forward(ids), targets)\nloss.backward()",
    "plain": _PASS,
    "no_sync": f"""\
if micro == 0:
    with M.no_sync():
        loss = loss_of(M(ids), targets) / 2
        loss.backward()
else:
{_INSIDE}""",
    "null": f"with M.no_sync() if micro == 0 else contextlib.nullcontext():\n{_INSIDE}",
    "stack": f"""\
with contextlib.ExitStack() as stack:
    if micro == 0:
        stack.enter_context(M.no_sync())
{_INSIDE}""",
    "given": f"waits = M.no_sync if micro == 0 else contextlib.nullcontext\nwith waits():\n{_INSIDE}",
}
CLIP = {
    "": "",
    "method": "norm = M.clip_grad_norm_(0.5)\nseen.append(float(norm))",
    "item": "seen.append(M.clip_grad_norm_(max_norm=0.5, norm_type=2.0).item())",
    "inf": "seen.append(M.clip_grad_norm_(0.1, norm_type=float('inf')).item())",
    "torch": "seen.append(torch.nn.utils.clip_grad_norm_(M.parameters(), 0.5).item())",
}
ZERO = {"optimizer": "O.zero_grad()", "model": "M.zero_grad()", "keyword": "O.zero_grad(set_to_none=True)"}
AVERAGE_BEFORE = {
    "": "",
    "summon": "average = {}",
    "zip": "average = [p.detach().clone() for p in M.parameters()]",
    "copy": "torch.manual_seed(3)\nother = shard(Net(tied=TIED), CONFIG)",
}
AVERAGE = {
    "": "",
    "summon": """\
with @FullyShardedDataParallel.summon_full_params(M, writeback=False):
    for name, p in M.named_parameters():
        average.setdefault(name, p.detach().clone()).lerp_(p.detach(), 0.1)""",
    "zip": "for kept, p in zip(average, M.parameters()):\n    kept.lerp_(p.detach(), 0.1)",
    "copy": """\
with torch.no_grad():
    for kept, p in zip(other.parameters(), M.parameters()):
        kept.lerp_(p, 0.1)""",
}
SCHEDULE = {
    "": "",
    "cosine": "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(O, T_max=4)",
    "lambda": "scheduler = torch.optim.lr_scheduler.LambdaLR(O, lambda step: 1 / (1 + step))",
    "chained": """\
warm = torch.optim.lr_scheduler.LinearLR(O, start_factor=0.5, total_iters=1)
cool = torch.optim.lr_scheduler.StepLR(O, step_size=1, gamma=0.7)
scheduler = torch.optim.lr_scheduler.SequentialLR(O, [warm, cool], milestones=[1])""",
}
RIVAL_BEFORE = {
    "": "",
    "gan": """\
torch.manual_seed(5)
rival = shard(Net(tied=TIED), CONFIG)
rival_optimizer = torch.optim.SGD(rival.parameters(), lr=0.05)""",
    "teacher": "torch.manual_seed(5)\nteacher = shard(Net(tied=TIED), CONFIG)\nteacher.eval()",
}
RIVAL = {
    "": "",
    "gan": """\
with torch.no_grad():
    made = M(ids)
gap = (rival(ids) - made).float().pow(2).mean()
gap.backward()
rival_optimizer.step()
rival_optimizer.zero_grad()
losses.append(gap.item())""",
    "teacher": """\
with torch.no_grad():
    wanted = teacher(ids)
gap = (M(ids) - wanted).float().pow(2).mean()
gap.backward()
O.step()
O.zero_grad()
losses.append(gap.item())""",
}
"""Another model of the same kind, with an optimizer of its own or without one."""
CONFIG = {
    "": 'CONFIG = {"strategy": "SHARD_GRAD_OP", "mixed": True, "prefetch": False}',
    "namespace": 'CONFIG = types.SimpleNamespace(strategy="SHARD_GRAD_OP", mixed=True, prefetch=False)',
    "argparse": """\
parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="SHARD_GRAD_OP", choices=["FULL_SHARD", "SHARD_GRAD_OP"])
parser.add_argument("--mixed", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--prefetch", action="store_true")
CONFIG = parser.parse_args([])""",
    "dataclass": """\
@dataclasses.dataclass
class Config:
    strategy: str = "SHARD_GRAD_OP"
    mixed: bool = True
    prefetch: bool = False


CONFIG = Config()""",
}
FROZEN = {
    "": "",
    "first": "net.blocks[0].requires_grad_(False)",
    "names": """\
for name, p in net.named_parameters():
    p.requires_grad_("down" in name or "extra" in name)""",
    "all but": """\
net.requires_grad_(False)
for p in net.head.parameters():
    p.requires_grad = True
net.extra.requires_grad_(True)""",
}
"""The second and third are what adapters do."""
EVALUATE = {
    "": "",
    **{
        context: f"""\
M.eval()
with torch.{context}():
    ids, targets = batch(50 + step, rank)
    losses.append(loss_of(M(ids), targets).item())
M.train()"""
        for context in ("no_grad", "inference_mode")
    },
}
LOOKS = {
    "": "",
    "isinstance": "seen.append(float(isinstance(M, @FullyShardedDataParallel)))",
    "module": "seen.append(float(len(M.module.blocks)))",
    "summoned": """\
with @FullyShardedDataParallel.summon_full_params(M, writeback=False):
    seen.append(M.extra.weight.double().sum().item())""",
    "units": "seen.append(float(len(@FullyShardedDataParallel.fsdp_modules(M))))",
    "numel": "print(sum(p.numel() for p in M.parameters()))",
    "norm": """\
square = torch.zeros(())
for p in M.parameters():
    square += p.detach().float().norm() ** 2
dist.all_reduce(square)
seen.append(square.item())""",
    "loop": """\
for module in M.modules():
    if isinstance(module, @FullyShardedDataParallel) and module is not M:
        seen.append(1.0)""",
    "hook": """\
M.register_forward_hook(lambda module, given, made: seen.append(float(made.shape[0])))
M(batch(90, rank)[0])""",
    "held": """\
held = {"net": M, "others": [M]}
seen.append(loss_of(held["others"][0](batch(91, rank)[0]), targets).item())
seen.append(float(all(isinstance(m, @FullyShardedDataParallel) for m in held["others"])))""",
}
MODEL = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=8, depth=3, tied=False, recompute=False):
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 11, bias=False)
        self.extra = nn.Linear(width, width)
        self.register_buffer("scale", torch.full((1,), 0.5))
        self.recompute = recompute
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        x = x * self.scale.to(x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x + self.extra(x)))

    def groups(self):
        named = {name: p for name, p in self.named_parameters() if p.requires_grad}
        decay = [p for p in named.values() if p.dim() >= 2]
        rest = [p for p in named.values() if p.dim() < 2]
        return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]

    def configured(self, lr):
        return torch.optim.AdamW(self.groups(), lr=lr, eps=1e-3)


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    ids = torch.randint(0, 11, (4, 6), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def loss_of(logits, targets):
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
"""
