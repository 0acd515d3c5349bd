import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)

from fsdp2_sharding import shard_model


def save(model, teacher, path):
    model, teacher = shard_model(model), shard_model(teacher)
    config = StateDictOptions(full_state_dict=True, cpu_offload=True)
    torch.save(
        {
            "model": get_model_state_dict(model, options=config),
            "teacher": get_model_state_dict(
                teacher, options=StateDictOptions(full_state_dict=True)
            ),
        },
        path,
    )
