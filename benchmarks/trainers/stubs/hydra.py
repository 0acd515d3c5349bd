"""Stands in for Hydra: the configuration with its defaults list, then `key.key=value` arguments."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omegaconf
import yaml


def main(config_path: str, config_name: str, **_: Any) -> Callable[..., Any]:
    """Call the function with the configuration."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call() -> Any:
            folder = Path(function.__code__.co_filename).parent / config_path
            return function(compose(folder, config_name, sys.argv[1:]))

        return call

    return decorated


def compose(folder: Path, name: str, overrides: list[str]) -> omegaconf.DictConfig:
    """The file, one file for each group of its defaults list, and the overrides on top."""
    config = omegaconf.OmegaConf.load(folder / f"{name}.yaml")
    given = dict(override.split("=", 1) for override in overrides)
    for default in config.pop("defaults", []):
        if isinstance(default, dict):
            for group, choice in default.items():
                chosen = given.pop(group, choice)
                config[group] = omegaconf.OmegaConf.load(folder / group / f"{chosen}.yaml")
    for key, text in given.items():
        *above, last = key.split(".")
        holder = functools.reduce(lambda found, part: found[part], above, config)
        holder[last] = omegaconf.of(yaml.safe_load(text))
    return config
