"""Pretrain a small Llama from configuration: FSDP1, bfloat16, one unit per decoder layer.

    torchrun --nproc-per-node 2 train.py --out runs/a
"""

import argparse
import functools
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def build_model():
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def tokens_of_step(step, rank, device):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    starts = torch.randint(256, (4, 1), generator=generator)
    strides = torch.randint(1, 5, (4, 1), generator=generator)
    return ((starts + strides * torch.arange(64)) % 256).to(device)


def save_checkpoint(model, optimizer, out, step):
    rank = dist.get_rank()
    save_policy = FullStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True)
    optim_policy = FullOptimStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy, optim_policy):
        model_state = model.state_dict()
        optim_state = FSDP.optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save({"model": model_state, "step": step}, out / "model.pt")
        torch.save(optim_state, out / "optimizer.pt")


def save_rank_files(model, optimizer, out, step):
    rank = dist.get_rank()
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        torch.save({"model": model.state_dict(), "step": step}, out / f"model_rank{rank}.pt")
    torch.save(optimizer.state_dict(), out / f"optimizer_rank{rank}.pt")


def resume_from(model, optimizer, path):
    model_state, optim_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optim_state, "step": 0}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    return state["step"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--save-at", type=int, default=0)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    if torch.cuda.is_available():
        dist.init_process_group("nccl")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        dist.init_process_group("gloo")
        device = torch.device("cpu")
    rank = dist.get_rank()
    torch.manual_seed(7)

    bf16 = MixedPrecision(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.bfloat16,
        buffer_dtype=torch.bfloat16,
    )
    model = FSDP(
        build_model(),
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
        ),
        mixed_precision=bf16,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=device,
        limit_all_gathers=True,
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    first = resume_from(model, optimizer, args.resume) if args.resume else 0

    args.out.mkdir(parents=True, exist_ok=True)
    for step in range(first, args.steps):
        tokens = tokens_of_step(step, rank, device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        norm = model.clip_grad_norm_(args.clip)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().float()
        dist.all_reduce(mean)
        if rank == 0:
            record = {"step": step + 1, "loss": mean.item() / dist.get_world_size(), "norm": norm.item()}
            with open(args.out / "log.jsonl", "a") as log:
                log.write(json.dumps(record) + "\n")
        if step + 1 == args.save_at:
            save_checkpoint(model, optimizer, args.out, step + 1)
            save_rank_files(model, optimizer, args.out, step + 1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
