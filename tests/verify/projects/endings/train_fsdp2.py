from job import begin, train
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module) -> nn.Module:
    for layer in model:
        if isinstance(layer, nn.Sequential):
            fully_shard(layer)
    return fully_shard(model)


def main() -> None:
    everything = StateDictOptions(full_state_dict=True)
    train(
        "candidate",
        shard,
        lambda model: get_model_state_dict(model, options=everything),
        lambda model, kept: set_model_state_dict(model, kept, options=everything),
    )


if __name__ == "__main__":
    begin(main)
