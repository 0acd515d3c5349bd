import abc
import functools
from typing import Generic, TypeVar

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

T = TypeVar("T")


class Generating(abc.ABC):
    pass


class Language(Generating, nn.Module):
    pass


class Block(Generic[T], nn.Module):
    pass


class Fine(nn.Module, abc.ABC):
    pass


class NotWrapped(abc.ABC, nn.Module):
    pass


class Registered(nn.Module):
    def __init_subclass__(cls, kind, **keywords):
        super().__init_subclass__(**keywords)


class Settings(abc.ABC):
    pass


class Tuned(Settings):
    pass


def build(config):
    return Language()


def main():
    policy = ModuleWrapPolicy({Block, Fine})
    make = functools.partial(build, config=Tuned())
    return FSDP(make(), auto_wrap_policy=policy), FSDP(Registered())
