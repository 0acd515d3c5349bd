import abc
import functools
from typing import Generic, TypeVar

from torch import nn

from fsdp2_sharding import ModuleWrapPolicy, shard_model

T = TypeVar("T")


class Generating(abc.ABC):
    pass


# TODO(fsdp-migrate FM527): name `nn.Module` first among the bases
class Language(Generating, nn.Module):
    pass


# TODO(fsdp-migrate FM527): name `nn.Module` first among the bases
class Block(Generic[T], nn.Module):
    pass


class Fine(nn.Module, abc.ABC):
    pass


class NotWrapped(abc.ABC, nn.Module):
    pass


# TODO(fsdp-migrate FM527): give the arguments of `__init_subclass__` default values
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
    return shard_model(make(), auto_wrap_policy=policy), shard_model(Registered())
