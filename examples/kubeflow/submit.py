"""Train a function on two nodes by Kubeflow's SDK, as a run of your team: `python submit.py NAME`."""

import argparse

from kubeflow.trainer import CustomTrainer, TrainerClient

from trainyard.adapters.kubeflow import run_options


def train(steps: int) -> None:
    """Train a linear model; the SDK sends the source of this function, so it imports what it needs."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import trainyard
    from trainyard.adapters import dcp

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = DistributedDataParallel(torch.nn.Linear(64, 1).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    checkpoints = dcp.Checkpointer(model, optimizer, every=20)
    step = checkpoints.resume()
    while step < steps:
        generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        inputs = torch.randn(32, 64, generator=generator).to(device)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        trainyard.log(step=step, loss=loss.item())
        checkpoints.finish_step(step, last=step == steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--image", help="by digest; default: the platform's trainer")
    args = parser.parse_args()
    trainer = CustomTrainer(
        func=train,
        func_args={"steps": args.steps},
        image=args.image,
        num_nodes=2,
        resources_per_node={"gpu": 1, "cpu": 1, "memory": "2Gi"},
    )
    print(TrainerClient().train(trainer=trainer, options=run_options(args.name, hours=1)))
