from dataclasses import dataclass


@dataclass
class TrainConfig:
    cpu_offload: bool = False
    backend: str = "nccl"
