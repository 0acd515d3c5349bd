"""Train a small character-level GPT on every rank of a torchrun job.

torchrun --nproc-per-node 2 train.py --steps 20 --out-dir out
torchrun --nproc-per-node 2 train.py --steps 40 --out-dir out --resume out/checkpoints/full-000020.pt
"""

import contextlib
import json
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from checkpoint import load_checkpoint, save_checkpoint
from config import TrainConfig, load_config
from data import CharDataset
from model import GPT, GPTConfig
from sharding import count_units, wrap_model


def build_model(config: TrainConfig = TrainConfig()) -> nn.Module:
    """The model for the alphabet of the training data."""
    data = CharDataset(config.data_path, config.block_size, config.seed)
    return GPT(
        GPTConfig(
            vocab_size=data.vocab_size,
            block_size=config.block_size,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_embd=config.n_embd,
            dropout=config.dropout,
            bias=config.bias,
        )
    )


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then a cosine down to the minimum."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = min((step - config.warmup_steps) / (config.decay_steps - config.warmup_steps), 1.0)
    span = config.learning_rate - config.min_learning_rate
    return config.min_learning_rate + span * 0.5 * (1.0 + math.cos(math.pi * progress))


class Trainer:
    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.out_dir = Path(config.out_dir)
        self.step = 0

        torch.manual_seed(config.seed)
        self.data = CharDataset(config.data_path, config.block_size, config.seed)
        model = build_model(config)
        n_params = sum(p.numel() for p in model.parameters())
        self.model = wrap_model(model, config, device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )
        units = count_units(self.model)
        self.print(f"{n_params:,} parameters in {units} units on {self.world_size} ranks ({device.type})")
        if config.resume:
            self.step = load_checkpoint(Path(config.resume), self.model, self.optimizer)
            self.print(f"resumed {config.resume} at step {self.step}")

    def print(self, message: str) -> None:
        if self.rank == 0:
            print(message, flush=True)

    def log(self, record: dict) -> None:
        """Append to `log.jsonl`: one line per step, numbers with all their digits."""
        if self.rank == 0:
            self.out_dir.mkdir(parents=True, exist_ok=True)
            with (self.out_dir / "log.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")

    def average(self, value: torch.Tensor) -> float:
        """The mean of a scalar over all ranks."""
        dist.all_reduce(value)
        return value.item() / self.world_size

    def batch(self, split: str, index: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = self.data.batch(split, index, size, self.rank, self.world_size)
        return inputs.to(self.device), targets.to(self.device)

    def train_step(self) -> tuple[float, float]:
        """One optimizer step. Returns the loss (mean over all ranks) and the gradient norm before clipping."""
        config = self.config
        micro_batch_size = config.global_batch_size // config.accumulation_steps
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, config)

        total = torch.zeros((), device=self.device)
        for micro_step in range(config.accumulation_steps):
            index = self.step * config.accumulation_steps + micro_step
            inputs, targets = self.batch("train", index, micro_batch_size)
            is_last = micro_step == config.accumulation_steps - 1
            # Gradients are reduced once per optimizer step, with the last micro-batch.
            with contextlib.nullcontext() if is_last else self.model.no_sync():
                _, loss = self.model(inputs, targets)
                loss = loss / config.accumulation_steps
                loss.backward()
            total += loss.detach()

        grad_norm = self.model.clip_grad_norm_(config.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return self.average(total), grad_norm.item()

    @torch.no_grad()
    def evaluate(self) -> float:
        self.model.eval()
        total = torch.zeros((), device=self.device)
        for index in range(self.config.eval_batches):
            inputs, targets = self.batch("val", index, self.config.global_batch_size)
            _, loss = self.model(inputs, targets)
            total += loss / self.config.eval_batches
        self.model.train()
        return self.average(total)

    def save(self) -> None:
        for fmt in self.config.save_formats.split(","):
            save_checkpoint(self.out_dir / "checkpoints", fmt, self.model, self.optimizer, self.step)

    def fit(self) -> None:
        config = self.config
        while self.step < config.steps:
            loss, grad_norm = self.train_step()
            self.step += 1
            record = {"step": self.step, "loss": loss, "grad_norm": grad_norm}
            if self.step % config.eval_interval == 0:
                record["val_loss"] = self.evaluate()
            self.log(record)
            self.print(f"step {self.step:4d}  loss {loss:.4f}  grad norm {grad_norm:.4f}")
            if config.save_interval and self.step % config.save_interval == 0:
                self.save()


def main() -> None:
    config = load_config()
    if torch.cuda.is_available():
        dist.init_process_group("nccl")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        dist.init_process_group("gloo")
        device = torch.device("cpu")
    Trainer(config, device).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
