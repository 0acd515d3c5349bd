import torch

from setup import build


def main(path, rank):
    model = build()
    state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
