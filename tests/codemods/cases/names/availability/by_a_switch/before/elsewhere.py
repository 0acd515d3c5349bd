from settings import FSDP


def describe(model):
    if FSDP is None:
        return "whole"
    return type(model).__name__
