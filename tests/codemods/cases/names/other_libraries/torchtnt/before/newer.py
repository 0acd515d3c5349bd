from torchtnt.utils.prepare_module import FSDP2Strategy, prepare_fsdp2


def sharded(module, device):
    return prepare_fsdp2(module, device, FSDP2Strategy())
