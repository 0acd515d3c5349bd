import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from contexts import optimizer_state, optimizer_state_to_load, state_dicts
from steps import build, train


def model_state(model, kind):
    with state_dicts(model, kind):
        return model.state_dict()


def main(out, kind):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    state = {
        "model": model_state(model, kind),
        "optim": optimizer_state(model, optimizer, kind),
    }
    again, again_optimizer = build()
    if kind == "full":
        path = out / "checkpoint.pt"
        if dist.get_rank() == 0:
            torch.save(state, path)
        dist.barrier()
        saved = torch.load(path, weights_only=False)
    else:
        train(again, again_optimizer, 7, 8)
        path = out / "shards"
        dcp.save(state, checkpoint_id=path)
        saved = {
            "model": model_state(again, kind),
            "optim": optimizer_state(again, again_optimizer, kind),
        }
        dcp.load(saved, checkpoint_id=path)
    with state_dicts(again, kind=kind):
        again.load_state_dict(saved["model"])
    # With rank0_only the optimizer's state is needed on rank 0 alone.
    moments = saved["optim"] if kind != "full" or dist.get_rank() == 0 else None
    loadable = optimizer_state_to_load(moments, again, again_optimizer, kind)
    again_optimizer.load_state_dict(loadable)
    losses += train(again, again_optimizer, 2, 4)
    return {"losses": losses, "model": again}
