"""FSDP2 on machines without a GPU, such as the sandbox."""

from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from accelerate.parallelism_config import ParallelismConfig
from accelerate.state import PartialState


def shard(accelerator: Accelerator) -> None:
    """Turn on FSDP2, which Accelerate ignores on CPUs, although the same code runs there."""
    state = accelerator.state
    state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
    state.fsdp_plugin = FullyShardedDataParallelPlugin()  # as `accelerate launch` configures it
    state.parallelism_config = ParallelismConfig(dp_shard_size=accelerator.num_processes)
    state.device_mesh = state.parallelism_config.get_device_mesh("cpu")
