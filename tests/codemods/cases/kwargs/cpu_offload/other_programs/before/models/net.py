from torch import nn


class Net(nn.Sequential):
    pass
