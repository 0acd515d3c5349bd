"""Stands in for OmegaConf: a nested dict with attributes, read from YAML. No interpolation, no types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

MISSING = "???"


class DictConfig(dict[str, Any]):
    """A dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def of(value: Any) -> Any:
    """Plain containers as configurations."""
    if isinstance(value, dict):
        return DictConfig({key: of(each) for key, each in value.items()})
    return [of(each) for each in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Configurations as plain containers."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


class OmegaConf:
    """The functions the trainers call."""

    @staticmethod
    def register_new_resolver(name: str, resolver: Callable[..., Any], **_: Any) -> None:
        """Interpolations are given as overrides instead."""

    @staticmethod
    def resolve(config: DictConfig) -> None:
        """Nothing is left to resolve."""

    @staticmethod
    def missing_keys(config: DictConfig) -> set[str]:
        """Names of values that must be given and are not, one level down."""
        nested = [
            f"{key}.{name}"
            for key, value in config.items()
            if isinstance(value, DictConfig)
            for name in value
            if value[name] == MISSING
        ]
        return {key for key, value in config.items() if value == MISSING} | set(nested)

    @staticmethod
    def load(path: str | Path) -> DictConfig:
        """Read YAML."""
        found: DictConfig = of(yaml.safe_load(Path(path).read_text()) or {})
        return found

    @staticmethod
    def to_yaml(config: DictConfig) -> str:
        """As YAML."""
        return str(yaml.safe_dump(plain(config)))

    @staticmethod
    def to_container(config: DictConfig, **_: Any) -> Any:
        """As plain containers."""
        return plain(config)

    @staticmethod
    def save(config: DictConfig, stream: Any) -> None:
        """Write YAML."""
        stream.write(OmegaConf.to_yaml(config))
