import torch

from fsdp2_sharding import shard_model


class Plugin:
    def set_offload(self):
        from fsdp2_sharding import CPUOffload

        if self.fsdp_version == 2:
            from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

        if isinstance(self.cpu_offload, bool):
            if self.fsdp_version == 2:
                if not self.cpu_offload:
                    self.cpu_offload = OffloadPolicy()
                else:
                    self.cpu_offload = CPUOffloadPolicy()
            else:
                self.cpu_offload = CPUOffload(offload_params=self.cpu_offload)


def wrap(model, plugin):
    return shard_model(
        model, cpu_offload=plugin.cpu_offload, device_id=torch.cuda.current_device()
    )
