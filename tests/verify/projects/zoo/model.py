"""A small token model with everything that migrations trip over, each part on demand."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, VOCABULARY = 16, 50


class Block(nn.Module):
    def __init__(self, choice: argparse.Namespace, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if choice.norm else nn.Identity()
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH)
        self.drop = nn.Dropout(0.2 if choice.dropout else 0.0)
        if choice.lora:
            self.lora_a = nn.Linear(WIDTH, 4, bias=False)
            self.lora_b = nn.Linear(4, WIDTH, bias=False)
        if choice.nested:
            self.inner = Inner()

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        scaled = self.norm((x * table).to(x.dtype))
        y = x + self.drop(self.down(torch.relu(self.up(scaled))))
        if hasattr(self, "lora_a"):
            y = y + self.lora_b(self.lora_a(x))
        if hasattr(self, "inner"):
            y = self.inner(y)
        return y


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.proj(x)


class Model(nn.Module):
    def __init__(self, choice: argparse.Namespace) -> None:
        super().__init__()
        self.choice = choice
        self.embed = nn.Embedding(VOCABULARY + 3 * choice.uneven, WIDTH)
        hidden = 29 if choice.uneven else 32
        self.blocks = nn.ModuleList(Block(choice, hidden) for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY + 3 * choice.uneven, bias=False)
        if choice.tied:
            self.head.weight = self.embed.weight
        if choice.unused:
            self.spare = nn.Linear(WIDTH, 3)
        if choice.ignored:
            self.side = nn.Linear(WIDTH, WIDTH)
        if choice.bn:
            self.bn = nn.BatchNorm1d(WIDTH)
        if choice.frozen:
            self.blocks[0].requires_grad_(False)
        if choice.lora:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora" in name)
        self.register_buffer("table", self.positions(), persistent=False)

    @staticmethod
    def positions() -> torch.Tensor:
        return torch.linspace(0.9, 1.1, WIDTH * 8).view(8, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        if self.choice.ignored:
            x = x + self.side(x)
        if self.choice.bn:
            x = self.bn(x.flatten(0, 1)).view_as(x)
        for block in self.blocks:
            x = block(x, table=self.table) if block is self.blocks[1] else block(x, self.table)
        return self.head(x)


def init_by_type(model: nn.Module, kind: type) -> None:
    """Initialise what `type(...)` says is a block: the habit that `fully_shard` breaks."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for module in model.modules():
            if type(module) is kind:
                for parameter in module.parameters():
                    value = torch.randn(parameter.shape, generator=draw) / 8
                    parameter.copy_(value) if parameter.device.type != "meta" else None


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())


SWITCHES = [
    *("scaler", "sync", "seed_by_rank", "tied", "frozen", "unused", "ignored", "bn", "dropout", "norm"),
    *("nested", "lora", "uneven", "groups", "drop_first", "autocast", "offload", "checkpointing", "compile"),
    *("save", "ema", "evaluate", "write", "scheduler", "show", "flat", "init_by_type", "save_optim"),
    *("norm_unit", "buffers_bf16", "pure_bf16"),
]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--reduce", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--norm-type", type=float, default=2.0)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--strategy", default="FULL_SHARD")
    parser.add_argument("--resume", default="")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--mistake", default="")
    for name in SWITCHES:
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    return parser.parse_args()


def optimizer_for(parameters: list, choice: argparse.Namespace, name: str = "") -> torch.optim.Optimizer:
    kind = name or choice.optimizer
    if choice.groups:
        parameters = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
    more = {
        "sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        "adamw": {"lr": 1e-2, "weight_decay": 0.1},
        "adam": {"lr": 1e-2, "amsgrad": True},
        "adagrad": {"lr": 1e-2},
        "rmsprop": {"lr": 1e-3, "momentum": 0.5},
        "nadam": {"lr": 1e-2},
        "adadelta": {"lr": 1.0},
        "adamax": {"lr": 1e-2},
    }[kind]
    names = {"sgd": "SGD", "adamw": "AdamW", "adam": "Adam", "rmsprop": "RMSprop", "nadam": "NAdam"}
    return getattr(torch.optim, names.get(kind, kind.capitalize()))(parameters, **more)
