import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from fsdp2_sharding import no_sync_of_either
from model import build, loader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)


def main(args, path):
    plugin = None
    if args.shard:
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            state_dict_type="FULL_STATE_DICT",
            reshard_after_forward=True,
        )
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(build())
    batches = accelerator.prepare(loader())
    torch.save(batches.state_dict(), path)
    # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
    #   `get_model_state_dict(model)` for shards, from
    #   `torch.distributed.checkpoint.state_dict`
    torch.save(model.state_dict(), path)
    torch.save(
        get_model_state_dict(
            accelerator.unwrap_model(model),
            options=StateDictOptions(full_state_dict=True),
        ),
        path,
    )
    with no_sync_of_either(model):
        model(path)
