import torch

from model import Model, batch, loss_of
from wrappers import Wrapper


def other_libraries(model):
    """Names that look the same and are not FSDP1's."""
    from fairscale.nn import FullyShardedDataParallel as FSDP
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel

    model = XlaFullyShardedDataParallel(FSDP(model))
    with model.no_sync():
        model.clip_grad_norm_(1.0)
    return isinstance(model, FSDP)


def main(out):
    model = Wrapper(Model(), device_id=torch.device("cpu"), use_orig_params=True)
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item(), "is": isinstance(model, Wrapper)}
