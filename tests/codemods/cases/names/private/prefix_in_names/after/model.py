from torch import nn


class Block(nn.Module):
    def forward(self, x):
        return x


class Cross(nn.Module):
    def forward(self, x, y):
        return x + y
