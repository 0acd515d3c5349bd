import bitsandbytes as bnb


def merged(layer, weight):
    layer.weight = bnb.nn.Params4bit(weight.to("cpu"), requires_grad=False)
    return layer
