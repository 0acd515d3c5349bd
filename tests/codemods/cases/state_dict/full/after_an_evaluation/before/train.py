import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model
from trainer import Trainer, resume


def main(out, use_orig_params):
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=use_orig_params,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = Trainer(model, optimizer, out)
    losses = trainer.fit(3)
    losses.append(trainer.evaluate())
    trainer.load_optimizer()
    losses.append(trainer.evaluate())
    trainer.load_model()
    losses += trainer.fit(1)
    moments = resume(trainer, model)
    losses.append(trainer.evaluate())
    return {"model": model, "losses": losses, "moments": moments["state"]}
