import torch
from torch.distributed.fsdp import FSDPModule

from fsdp2_sharding import clip_grad_norm_
from model import Model, batch, loss_of
from wraps import FORMS


def main(out):
    results = {}
    for form in FORMS:
        torch.manual_seed(3)
        model = form(Model())
        loss = loss_of(model, batch(0))
        loss.backward()
        units = len(
            [module for module in model.modules() if isinstance(module, FSDPModule)]
        )
        norm = clip_grad_norm_(model.parameters(), float("inf"), norm_type=torch.inf)
        results[form.__name__] = [units, loss.item(), norm.item()]
    return results
