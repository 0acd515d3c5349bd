import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from model import build, loader


def main(args, path):
    plugin = None
    if args.shard:
        plugin = FullyShardedDataParallelPlugin(sharding_strategy="FULL_SHARD")
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(build())
    batches = accelerator.prepare(loader())
    torch.save(batches.state_dict(), path)
    torch.save(model.state_dict(), path)
    torch.save(accelerator.unwrap_model(model).state_dict(), path)
    with model.no_sync():
        model(path)
