import torch
import torch.distributed as dist

from fsdp2_sharding import ModuleWrapPolicy, shard_model
from model import batch, loss_of
from rotary import Block, Rotary


def on_rank0():
    """Real weights on rank 0, no storage elsewhere."""
    if dist.get_rank() == 0:
        model = Rotary()
    else:
        with torch.device("meta"):
            model = Rotary()
    return shard_model(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sync_module_states=True,
        param_init_fn=lambda m: m.to_empty(device="cpu", recurse=False),
        device_id=torch.device("cpu"),
    )


def without_function():
    """FSDP1 calls `reset_parameters` of what is on meta."""
    with torch.device("meta"):
        model = Rotary()
    return shard_model(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
    )


def initialised_afterwards():
    context = torch.device("meta")
    with context:
        model = Rotary()
    sharded = shard_model(
        model,
        param_init_fn=lambda m: m.to_empty(device="cpu", recurse=False),
        device_id=torch.device("cpu"),
    )
    model.fill()
    return sharded


def main(out, way):
    if way == "rank0":
        model = on_rank0()
    elif way == "no_function":
        model = without_function()
    else:
        model = initialised_afterwards()
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}
