import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Plugin:
    def set_offload(self):
        if self.fsdp_version == 2:
            from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy
        else:
            from torch.distributed.fsdp import CPUOffload

        if isinstance(self.cpu_offload, bool):
            if self.fsdp_version == 2:
                if not self.cpu_offload:
                    self.cpu_offload = OffloadPolicy()
                else:
                    self.cpu_offload = CPUOffloadPolicy()
            else:
                self.cpu_offload = CPUOffload(offload_params=self.cpu_offload)


def wrap(model, plugin):
    return FSDP(model, cpu_offload=plugin.cpu_offload, device_id=torch.cuda.current_device())
