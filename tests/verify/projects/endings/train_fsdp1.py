import torch
from job import begin, train
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model: nn.Module) -> nn.Module:
    units = ModuleWrapPolicy({nn.Sequential})
    return FSDP(model, auto_wrap_policy=units, use_orig_params=True, device_id=torch.device("cpu"))


def main() -> None:
    train(
        "original", shard, lambda model: model.state_dict(), lambda model, kept: model.load_state_dict(kept)
    )


if __name__ == "__main__":
    begin(main)
