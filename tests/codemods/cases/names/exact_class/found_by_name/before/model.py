from torch import nn


def build_model():
    return nn.Sequential(nn.Linear(4, 4))
