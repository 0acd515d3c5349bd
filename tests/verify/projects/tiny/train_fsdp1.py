import functools
from contextlib import nullcontext

import torch
import torch.distributed as dist
from model import Block, Model, loss_of, optimizer_for, options
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def resume(model, optimizer, path):
    kept = torch.load(path, map_location="cpu", weights_only=False)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, kept["optimizer"]))


def main() -> None:
    choice = options()
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(rank if choice.seed_by_rank else 0)
    precision = None
    if choice.dtype == "bf16":
        precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=DTYPES[choice.reduce])
    model = FSDP(
        Model(choice).cuda(),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        sharding_strategy=ShardingStrategy[choice.strategy],
        mixed_precision=precision,
        device_id=torch.cuda.current_device(),
        sync_module_states=choice.sync,
        use_orig_params=not choice.flat,
    )
    optimizer = optimizer_for(list(model.parameters()), choice)
    if choice.resume:
        resume(model, optimizer, choice.resume)
    data = torch.Generator().manual_seed(rank)
    torch.autocast("cuda", torch.bfloat16, enabled=choice.autocast).__enter__()
    for step in range(choice.steps):
        for micro in range(choice.accumulate):
            with model.no_sync() if micro + 1 < choice.accumulate else nullcontext():
                tokens = torch.randint(0, 50, (4, 8), generator=data)
                loss_of(model, tokens.cuda()).backward()
            if choice.drop_first and micro == 0 and step == 1:
                optimizer.zero_grad()
        if choice.clip:
            model.clip_grad_norm_(choice.clip)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
