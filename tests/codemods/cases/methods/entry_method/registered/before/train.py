import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from encoder import Encoder, Features
from model import Block, batch, loss_of


def main(out):
    model = FSDP(
        Encoder(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    features = Features(model)
    loss_of(model, batch(1)).backward()
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        encoded = model.encode(batch(0))
        tokens = model.generate(batch(0))
        from_class = features.of(batch(0))
    return {
        "name": model.name(),
        "encoded": encoded,
        "tokens": tokens,
        "features": from_class,
        "model": model,
    }
