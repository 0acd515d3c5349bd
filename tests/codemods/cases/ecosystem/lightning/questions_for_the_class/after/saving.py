import torch
from lightning.fabric.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy


def save(fabric, model, path):
    # TODO(fsdp-migrate FM633): ask for `ModelParallelStrategy` once the strategy is
    #   changed; state dicts of its models are shards: `get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))`
    if isinstance(fabric.strategy, FSDPStrategy):
        state = model._forward_module.state_dict()
    else:
        state = model.state_dict()
    torch.save(state, path)


def is_sharded(strategy):
    # TODO(fsdp-migrate FM633): ask for `ModelParallelStrategy` once the strategy is
    #   changed; state dicts of its models are shards: `get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))`
    return isinstance(strategy, (DeepSpeedStrategy, FSDPStrategy))


def is_either(strategy):
    return isinstance(strategy, (ModelParallelStrategy, FSDPStrategy))
