from torch import nn


class Block(nn.Module):
    pass
