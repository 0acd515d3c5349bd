from torch.distributed.fsdp import FSDPModule


def freeze_units(model):
    for unit in [
        module for module in model.modules() if isinstance(module, FSDPModule)
    ]:
        unit.requires_grad_(False)
