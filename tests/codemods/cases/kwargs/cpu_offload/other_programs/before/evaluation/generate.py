import torch.distributed as dist

from models.net import Net


def main():
    dist.init_process_group("nccl")
    return Net()  # no FSDP here
