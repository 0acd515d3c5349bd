"""Finetune-style training of a small GPT-2 with FSDP1: SHARD_GRAD_OP, flat parameters, accumulation.

    torchrun --nproc-per-node 2 train.py --out runs/a
"""

import argparse
import json
import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

ACCUMULATE = 2


def build_model():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_positions=128,
            n_embd=64,
            n_layer=3,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def shard(model, device):
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={GPT2Block})
    return FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        auto_wrap_policy=policy,
        device_id=device,
    )


def micro_batch(index, rank, device):
    generator = torch.Generator().manual_seed(1000 * index + rank)
    starts = torch.randint(256, (4, 1), generator=generator)
    strides = torch.randint(1, 5, (4, 1), generator=generator)
    return ((starts + strides * torch.arange(64)) % 256).to(device)


def save_full(model, optimizer, path, step):
    with FullyShardedDataParallel.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True),
    ):
        state = {
            "model": model.state_dict(),
            "optim": FullyShardedDataParallel.optim_state_dict(model, optimizer),
            "step": step,
        }
    if dist.get_rank() == 0:
        torch.save(state, path)


def save_rank_files(model, optimizer, out, step):
    rank = dist.get_rank()
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        torch.save({"model": model.state_dict(), "step": step}, out / f"model_rank{rank}.pt")
    torch.save(optimizer.state_dict(), out / f"optimizer_rank{rank}.pt")


def load_full(model, optimizer, path):
    state = torch.load(path, map_location="cpu", weights_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(state["model"])
        optim_state = FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, state["optim"])
    optimizer.load_state_dict(optim_state)
    return state["step"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--save-at", type=int, default=0)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(11)

    model = shard(build_model(), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = load_full(model, optimizer, args.resume) if args.resume else 0

    args.out.mkdir(parents=True, exist_ok=True)
    for step in range(first, args.steps):
        total = torch.zeros((), device=device)
        for micro in range(ACCUMULATE):
            tokens = micro_batch(step * ACCUMULATE + micro, rank, device)
            with model.no_sync() if micro + 1 < ACCUMULATE else nullcontext():
                loss = model(input_ids=tokens, labels=tokens).loss / ACCUMULATE
                loss.backward()
            total += loss.detach()
        norm = model.clip_grad_norm_(args.clip)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        if rank == 0:
            record = {"step": step + 1, "loss": total.item() / dist.get_world_size(), "norm": norm.item()}
            with open(args.out / "log.jsonl", "a") as log:
                log.write(json.dumps(record) + "\n")
        if step + 1 == args.save_at:
            save_full(model, optimizer, args.out / "full.pt", step + 1)
            save_rank_files(model, optimizer, args.out, step + 1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
