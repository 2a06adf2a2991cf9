"""Train a small Llama with the Lightning Trainer; stop on a notice and resume exactly."""

import argparse
import os
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM

import trainyard
from trainyard.adapters.lightning import NoticeCallback


class ByteLlama(LightningModule):
    """A Llama over bytes, 2 layers of width 64."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=256,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                attention_dropout=0.1,
            )
        ).train()

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        """Return the loss of one batch."""
        return self.llama(input_ids=batch.long(), labels=batch.long()).loss

    def configure_optimizers(self) -> dict:
        """Return AdamW with a cosine schedule over all steps."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def samples(count: int) -> torch.Tensor:
    """Return `count` samples of 128 bytes from Python's standard library."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = b"".join(file.read_bytes() for file in files)[: count * 128]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).view(-1, 128)


def main() -> None:
    """Train; resume from the run's newest checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--samples", type=int, default=4096, help="of 128 bytes, in an epoch")
    args = parser.parse_args()

    seed_everything(0)
    callback = NoticeCallback(every=args.save_every)
    trainer = Trainer(
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
        strategy="ddp",
        max_steps=args.steps,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    # A loader and a sampler with a state continue in the middle of an epoch.
    data, run = samples(args.samples), trainyard.run
    sampler = StatefulDistributedSampler(data, run.world_size, run.rank, seed=0)
    own = torch.Generator()  # an iterator does not take a number from the generator of dropout
    loader = StatefulDataLoader(data, batch_size=8, sampler=sampler, generator=own)
    trainer.fit(ByteLlama(args.steps), loader, ckpt_path=callback.latest())


if __name__ == "__main__":
    main()
