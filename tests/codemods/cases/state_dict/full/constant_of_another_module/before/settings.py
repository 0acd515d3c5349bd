from torch.distributed.fsdp import FullStateDictConfig

full_on_cpu = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
