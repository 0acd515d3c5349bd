import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def wrapped(model, args):
    if args.train:
        if args.fsdp:
            fully_shard(model)
        else:
            model = DistributedDataParallel(model)
    return model


def main(model, args):
    model = wrapped(model, args)
    if args.train:
        # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
        #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
        #   `get_model_state_dict(model)` for shards, from
        #   `torch.distributed.checkpoint.state_dict`
        torch.save(model.state_dict(), "either.pt")
        if args.fsdp:
            torch.save(
                get_model_state_dict(
                    model, options=StateDictOptions(full_state_dict=True)
                ),
                "sharded.pt",
            )
    if args.fsdp and args.train:
        torch.save(
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)),
            "also.pt",
        )
