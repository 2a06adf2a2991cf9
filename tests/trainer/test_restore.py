"""What a run has saved is of use without the trainer: transformers loads it, and a drill restores it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests.trainer.ranks import RunFiles
from tests.trainer.runs import STEPS, Trainer
from trainer.checkpointing import attached_files
from trainyard.store import manifest
from trainyard.store.manifest import Manifest
from trainyard.store.posix import PosixStore
from trainyard.tensors.layout import layout_from_json
from trainyard.tensors.loading import load_tensors, whole_tensors

pytestmark = pytest.mark.long(12)

NEWEST = f"step-{STEPS:08d}"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """`python -m trainer.checkpoint` in this process: exit code, output, errors."""

    def run(*words: object) -> tuple[int, str, str]:
        from trainer.checkpoint.__main__ import main

        monkeypatch.setattr(sys, "argv", ["trainer.checkpoint", *map(str, words)])
        code = main()
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


Ask = Callable[..., tuple[int, str, str]]


def model_of(run: RunFiles) -> dict[str, torch.Tensor]:
    store = PosixStore(run.path / "checkpoints")
    manifest, layout = store.manifest(STEPS), layout_from_json(store.read(STEPS, "layout.json"))
    tensors = whole_tensors(layout, "model")
    load_tensors(store, manifest, layout, {"model": tensors})
    return dict(tensors)


@pytest.mark.long(16)
def test_transformers_loads_an_exported_model_with_the_trained_weights(
    ask: Ask, control: RunFiles, tmp_path: Path
) -> None:
    code, said, _ = ask("export", control.path, tmp_path / "out")
    assert code == 0 and NEWEST in said
    trained = model_of(control)
    # A process of its own: the package's top level is what people import, and it is slow.
    program = (
        "import sys, torch, safetensors.torch as st, transformers as t;"
        "m = t.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32);"
        "out = m(torch.arange(8)[None]).logits.detach().clone();"
        "k = t.AutoTokenizer.from_pretrained(sys.argv[1]);"
        "print(k('it\\'s é')['input_ids'], k.eos_token_id, m.generation_config.eos_token_id);"
        "state = {k: v.clone() for k, v in m.state_dict().items()};"
        "st.save_file({**state, 'logits': out}, sys.argv[2])"
    )
    loaded_file = tmp_path / "loaded.safetensors"
    command = [sys.executable, "-c", program, str(tmp_path / "out"), str(loaded_file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ids = list("it's é".encode())
    assert done.stdout.splitlines()[-1] == f"{ids} 256 256"
    loaded = safetensors.torch.load_file(loaded_file)
    assert loaded.pop("logits").isfinite().all()
    for name, tensor in trained.items():
        assert torch.equal(loaded[name], tensor), name


def test_an_export_into_a_used_folder_is_refused(
    ask: Ask, control: RunFiles, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("precious")
    code, _, error = ask("export", control.path, tmp_path)
    assert code == 2 and "exists and is not an empty folder" in error
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_drill_restores_the_newest_elsewhere_and_a_run_goes_on_from_it(
    ask: Ask, trainer: Trainer, control: RunFiles
) -> None:
    scratch = trainer.root / "drilled"
    code, said, _ = ask("drill", control.path, "--scratch", scratch)
    assert code == 0, said
    assert f"{NEWEST}: " in said and "all hashes match" in said
    store = PosixStore(scratch / "checkpoints")
    assert store.steps() == [STEPS] and store.verify(STEPS) == []
    assert trainer.run("drilled", world=1) == [0]
    assert trainer.files("drilled").events("resumed")[0]["from_step"] == STEPS


@pytest.mark.parametrize("command", ["drill", "export"])
def test_a_damaged_checkpoint_is_neither_exported_nor_restored(
    command: str, ask: Ask, control: RunFiles, tmp_path: Path
) -> None:
    copy = tmp_path / NEWEST
    copy.mkdir()
    for file in (control.path / "checkpoints" / NEWEST).iterdir():
        content = bytearray(file.read_bytes())
        if file.name == "model.safetensors":
            content[-1] ^= 1
        (copy / file.name).write_bytes(content)
    out = ["--scratch", tmp_path / "out"] if command == "drill" else [tmp_path / "out"]
    code, _, error = ask(command, copy, *out)
    assert code == 1 and "model.safetensors: content differs" in error
    assert not list((tmp_path / "out").rglob("*safetensors")) if command == "export" else True
    assert PosixStore(tmp_path / "out" / "checkpoints").steps() == []


def test_listing_verifying_and_explaining_load_no_torch(control: RunFiles) -> None:
    for command in ("list", "verify", "explain"):
        program = (
            f"import sys; sys.argv = ['x', '{command}', {str(control.path)!r}];"
            "from trainer.checkpoint.__main__ import main; code = main();"
            "sys.exit(code or 'torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert NEWEST in done.stdout or f"{STEPS}" in done.stdout


def test_a_checkpoint_names_its_model_s_configuration(control: RunFiles) -> None:
    config = json.loads((control.path / "checkpoints" / NEWEST / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["hidden_size"] == 16


@pytest.mark.parametrize("name", ["random-00001.json", "config.json", "layout.json"])
def test_damage_is_found_in_files_that_the_resuming_ranks_do_not_need(
    name: str, trainer: Trainer, control: RunFiles
) -> None:
    files = trainer.files("run")
    shutil.copytree(control.path, files.path)
    damaged = files.path / "checkpoints" / NEWEST / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert trainer.run("run", world=1) == [0]
    (corrupt,) = files.events("checkpoint_corrupt")
    assert corrupt["step"] == STEPS and corrupt["error"].startswith(name)
    assert files.events("resumed")[-1]["from_step"] < STEPS


def test_the_tokenizer_of_the_first_folder_that_has_one_goes_with_a_checkpoint(
    tmp_path: Path,
) -> None:
    bare, first, second = (tmp_path / name for name in ("bare", "first", "second"))
    for folder in (bare, first, second):
        folder.mkdir()
    for folder in (first, second):
        (folder / "tokenizer.json").write_text(folder.name)
    (second / "tokenizer_config.json").write_text("second")
    found = attached_files(torch.nn.Linear(1, 1), [bare, first, second])
    assert found == {"tokenizer.json": b"first", "tokenizer_config.json": b"second"}
    assert attached_files(torch.nn.Linear(1, 1), [bare]) == {}


@pytest.mark.parametrize("number", [1, 4])
def test_a_checkpoint_of_another_format_is_refused_and_kept(
    number: int, trainer: Trainer, control: RunFiles
) -> None:
    files = trainer.files("run")
    shutil.copytree(control.path, files.path)
    manifest = files.path / "checkpoints" / NEWEST / "manifest.json"
    other = replace(Manifest.from_json(manifest.read_text()), format=number)
    manifest.write_text(other.to_json())
    ranks = trainer.start("run")
    assert ranks.wait() == [78, 78]
    assert f"got {number}; this release reads 3; use the run's image, or" in ranks.output()
    assert manifest.read_text() == other.to_json()


@pytest.mark.skipif(manifest.preferred() != manifest.BLAKE3, reason="without blake3")
def test_an_image_without_blake3_refuses_such_checkpoints_and_keeps_them(
    trainer: Trainer, control: RunFiles
) -> None:
    def without(_: int) -> None:
        pytest.MonkeyPatch().setattr(manifest, "_blake3", lambda: None)

    shutil.copytree(control.path, trainer.root / "run")
    ranks = trainer.start("run", hook=without)
    assert ranks.wait() == [78, 78]
    assert "hash blake3: needs the Python package blake3" in ranks.output()
    assert trainer.run("run") == [0, 0]
    assert trainer.files("run").events("resumed")[-1]["from_step"] == STEPS
