from model import Model


def build(width):
    return Model(width)
