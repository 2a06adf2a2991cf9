"""A rank with torch: sums the ranks over gloo, at the addresses that its launcher has set."""

import pathlib
import socket
import sys

import torch
import torch.distributed as dist

folder = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
folder.mkdir(parents=True, exist_ok=True)
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
with (folder / "started").open("a") as file:
    file.write(f"{int(total)} {dist.get_rank()} {socket.gethostname()}\n")
dist.barrier()
dist.destroy_process_group()
