from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, rank):
    model = FSDP(net, use_orig_params=True)
    model(3).backward()
    if rank == 0:
        for name, p in model.named_parameters():
            print(name, p.grad.norm().item())
    for name, p in model.named_parameters():
        print(name, p.grad.norm().item())
