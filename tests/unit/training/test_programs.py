"""Run files with a program: the run that they become, and one line per mistake."""

from __future__ import annotations

import io
import json
import random
import subprocess
import zipfile
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import ConfigError
from infra.kubernetes.objects import Manifest
from tests.golden.example_runs import (
    IMAGE,
    RUN_FILE,
    platform,
    project_in,
    stack_values,
    write_runs,
)
from tests.unit.training.config_issues import check_issues
from tests.unit.training.pods import containers
from training import plan, run_files, runtime_archive
from training.job import manifests
from training.needs import Preparation
from training.spec import RunSpec
from trainyard import contract
from trainyard.launch import read_facts
from trainyard.placeholders import expand
from trainyard.source import unpack

ROOT = Path(__file__).resolve().parents[3]

PROGRAM: dict[str, Any] = {
    "name": "llama",
    "version": 1,
    "team": "research",
    "nodes": 2,
    "gpusPerNode": 8,
    "image": "trainer",
    "program": {
        "source": "code",
        "command": ["train.py", "--output", "{checkpoints}"],
        "env": {"RUN_NAME": "{run_id}"},
    },
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a program in `code`."""
    project = project_in(tmp_path)
    (project / "code").mkdir()
    (project / "code/train.py").write_text("print('trains')\n")
    return project


def load(project: Path, **changed: Any) -> RunSpec:
    """The run of the example's file with top-level keys replaced; keys of `program` are merged."""
    program = PROGRAM["program"] | changed.pop("program", {})
    write_runs(project, PROGRAM | changed | {"program": program})
    research, *others = stack_values()["teams"]
    stack = platform(
        teams=[research | {"secrets": [{"name": "hub", "env": ["HF_TOKEN"]}]}, *others]
    )
    [run] = run_files.load(("llama",), stack, {"trainer": IMAGE}, project)
    return run


def container(run: RunSpec) -> dict[str, Any]:
    """The container with the ranks."""
    found = containers(manifests(run, platform(), "c" * 40))
    return next(one for one in found if one["name"] != "launcher")


def variables(run: RunSpec) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(run)["env"]}


def maps(run: RunSpec) -> list[Manifest]:
    return [one for one in manifests(run, platform(), "c" * 40) if one["kind"] == "ConfigMap"]


def on_local_stack(project: Path, text: str) -> list[RunSpec]:
    """The runs of a run file on the committed stack `local`."""
    source = yaml.safe_load(text)["program"]["source"]
    (project / source).mkdir(parents=True, exist_ok=True)
    (project / source / "train.py").write_text("print('trains')\n")
    (project / "training/runs/short.yaml").write_text(text)
    values = {k.partition(":")[2]: v for k, v in _stack("local").items()}
    return plan.make(values | {"runs": ["short"]}, "local", project, preview=True).runs


def documented() -> str:
    """The first example of the page."""
    return (ROOT / "docs/programs.md").read_text().split("```yaml\n")[1].split("```")[0]


def test_a_plain_ddp_script_needs_at_most_15_lines(project: Path) -> None:
    assert len(documented().splitlines()) <= 15
    [run] = on_local_stack(project, documented())
    assert run.name == yaml.safe_load(documented())["name"]


def test_an_interface_or_mtu_that_pods_do_not_have_is_refused(project: Path) -> None:
    on_local_stack(project, documented() + "network: {interface: lo, mtu: 1500}\n")
    with pytest.raises(ConfigError) as caught:
        on_local_stack(project, documented() + "network: {interface: eth0}\n")
    assert [one.code for one in caught.value.issues if not isinstance(one, str)] == [
        "unknown-interface"
    ]


def _stack(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())["config"]
    return found


def test_a_changed_script_is_a_new_run_and_needs_no_other_image(project: Path) -> None:
    before = load(project)
    assert load(project).run_id == before.run_id
    (project / "code/train.py").write_text("print('trains better')\n")
    after = load(project)
    assert after.run_id != before.run_id
    assert after.image == before.image


def test_the_mounted_source_unpacks_to_the_folder(project: Path, tmp_path: Path) -> None:
    (project / "code/lib").mkdir()
    (project / "code/lib/large.bin").write_bytes(bytes(range(256)) * 4 + _noise(1_500_000))
    run = load(project)
    main, *parts = maps(run)
    assert len(parts) > 1
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for part in parts:
        for name, content in part["binaryData"].items():
            assert len(content) < 2**20
            (mounted / name).write_bytes(b64decode(content))
    sha256 = json.loads(main["data"]["program.json"])["source"]["sha256"]
    into = unpack(mounted, sha256, tmp_path / "into")
    assert (into / "train.py").read_text() == "print('trains')\n"
    assert (into / "lib/large.bin").read_bytes() == (project / "code/lib/large.bin").read_bytes()


def _noise(size: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(1).randbytes(size)


def test_the_zip_imports_in_a_bare_interpreter_and_is_the_same_each_time(tmp_path: Path) -> None:
    packed = runtime_archive.package()
    files = {i.filename: i for i in zipfile.ZipFile(io.BytesIO(packed)).infolist()}
    assert "trainyard/contract.py" in files
    assert {one.date_time[0] for one in files.values()} == {1980}
    assert runtime_archive.pack({"b": b"2", "a": b"1"}) == runtime_archive.pack(
        {"a": b"1", "b": b"2"}
    )
    place = tmp_path / runtime_archive.ZIP_FILE
    place.write_bytes(packed)
    code = f"import sys; sys.path.insert(0, {str(place)!r}); import trainyard.contract as c; print(c.__file__)"
    done = subprocess.run(["python3", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(place))


def test_dirt_of_the_source_is_recorded_and_is_no_part_of_the_id(project: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, *arguments], cwd=project, check=True, capture_output=True)

    def dirty(run: RunSpec) -> bool:
        assert run.program
        return bool(run.program.record()["source"]["dirty"])

    before = load(project)
    git("init")
    git("add", ".")
    assert dirty(load(project))
    git("commit", "-m", "first")
    after = load(project)
    assert not dirty(after)
    assert before.run_id == after.run_id


def test_network_settings_replace_those_of_the_pools(project: Path) -> None:
    plain = variables(load(project))
    assert plain["NCCL_DEBUG"] == "WARN" and "NCCL_ALGO" not in plain
    network = {
        "debug": "INFO",
        "subsystems": ["INIT", "NET"],
        "bufferBytes": 8388608,
        "threads": 256,
        "algorithms": ["Ring", "Tree"],
        "distributedDebug": "DETAIL",
    }
    found = variables(load(project, network=network))
    assert found["NCCL_DEBUG"] == "INFO" and found["NCCL_DEBUG_SUBSYS"] == "INIT,NET"
    assert (found["NCCL_BUFFSIZE"], found["NCCL_NTHREADS"]) == ("8388608", "256")
    assert (found["NCCL_ALGO"], found["TORCH_DISTRIBUTED_DEBUG"]) == ("Ring,Tree", "DETAIL")
    assert found["FI_PROVIDER"] == plain["FI_PROVIDER"]


def test_absent_resources_are_a_share_of_the_node_that_fits(project: Path) -> None:
    amounts = container(load(project))["resources"]
    assert amounts["requests"] == amounts["limits"]
    whole = int(amounts["limits"]["memory"].removesuffix("Mi"))
    eighth = container(load(project, nodes=1, gpusPerNode=1, jobKind="job"))["resources"]["limits"]
    assert 7 < whole / int(eighth["memory"].removesuffix("Mi")) < 9
    assert load(project).run_id == load(project, resources={}).run_id


def write(project: Path, name: str, content: Any) -> str:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return name


def zero(project: Path, **values: Any) -> dict[str, Any]:
    return {"program": {"launcher": "deepspeed", "deepspeed": write(project, "ds.json", values)}}


def accelerate(project: Path, **values: Any) -> dict[str, Any]:
    return {"program": {"launcher": "accelerate", "accelerate": write(project, "acc.yaml", values)}}


def link(project: Path) -> dict[str, Any]:
    (project / "code/link").symlink_to("../training")
    return {}


def ignored(project: Path) -> dict[str, Any]:
    subprocess.run(["git", "init"], cwd=project, check=True, capture_output=True)
    write(project, ".gitignore", "secret_*.py\n")
    write(project, "code/secret_train.py", "print()\n")
    return {"program": {"command": ["secret_train.py"]}}


def large(project: Path) -> dict[str, Any]:
    (project / "code/weights.bin").write_bytes(_noise(5_000_000))
    return {}


def packed_zero(project: Path, *, fp16: bool = True) -> str:
    """A DeepSpeed configuration in the source, with bf16, and fp16 too."""
    write(project, "code/z.json", {"fp16": {"enabled": fp16}, "bf16": {"enabled": True}})
    return "z.json"


def command(*words: str, files: tuple[Path, str] | None = None) -> dict[str, Any]:
    """A program of these words; `files`: a file of the project that exists."""
    if files:
        write(*files, "")
    return {"program": {"command": list(words)}}


def nested(words: tuple[str, ...]) -> Callable[[Path], dict[str, Any]]:
    return lambda _: command(*words)


NESTED = (
    ("torchrun", "--nproc-per-node=1", "train.py"),
    ("/opt/bin/torchrun", "train.py"),
    ("accelerate", "launch", "train.py"),
    ("deepspeed", "train.py"),
    ("mpirun", "-np", "2", "python", "train.py"),
    ("-m", "torch.distributed.run", "train.py"),
    ("python", "-m", "torch.distributed.launch", "train.py"),
    ("python3.11", "-u", "-m", "accelerate.commands.launch", "train.py"),
    ("env", "A=1", "torchrun", "train.py"),
    ("nsys", "profile", "-o", "out", "torchrun", "train.py"),
    ("bash", "-c", "cd x && A=1 exec torchrun train.py"),
)
OFFLOAD = {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}

WRONG: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "program and configuration of the trainer": (
        lambda _: {"config": "base", "checkpoint": {"everySteps": 5}},
        "config: trainer-setting\ncheckpoint: trainer-setting",
    ),
    "unknown launcher of ranks": (
        lambda _: {"program": {"launcher": "torchrum"}},
        "program.launcher: unknown-value",
    ),
    "unknown placeholder": (
        lambda _: {"program": {"command": ["train.py", "{checkpoint}", "{{literal}}"]}},
        "program.command[1]: unknown-placeholder",
    ),
    "placeholder without its value": (
        lambda _: {"program": {"command": ["train.py", "{deepspeed_config}"]}},
        "program.command[1]: empty-placeholder",
    ),
    "python with several nodes": (
        lambda _: {"program": {"launcher": "python"}},
        "program.launcher: one-node-launcher",
    ),
    "mpirun without ssh": (
        lambda _: {"program": {"launcher": "mpirun"}},
        "program.launcher: mpi-kind",
    ),
    "torchrun in an mpijob": (
        lambda _: {"jobKind": "mpijob"},
        "program.launcher: mpi-kind",
    ),
    "variables of the platform": (
        lambda _: {
            "program": {
                "env": {"RANK": "0", "LD_PRELOAD": "x", "TRAINYARD_TEAM": "y", "PYTHONPATH": "z"}
                | {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}
            }
        },
        "\n".join(
            f"program.env.{name}: reserved-variable"
            for name in (
                *("LD_PRELOAD", "PYTHONPATH", "RANK"),
                *("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TRAINYARD_TEAM"),
            )
        ),
    ),
    "variable of accelerate launch": (
        lambda _: {
            "program": {"launcher": "accelerate", "env": {"ACCELERATE_MIXED_PRECISION": "bf16"}}
        },
        "program.env.ACCELERATE_MIXED_PRECISION: reserved-variable",
    ),
    "variables of the network": (
        lambda _: {"program": {"env": {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5"}}},
        "program.env.NCCL_DEBUG: network-variable\nprogram.env.NCCL_IB_HCA: network-variable",
    ),
    "variable that no shell knows": (
        lambda _: {"program": {"env": {"A-B": "1"}}},
        "program.env.A-B: invalid-variable",
    ),
    "secret in a variable": (
        lambda _: {"program": {"env": {"API_KEY": "hunter2"}}},
        "program.env.API_KEY: plaintext-secret",
    ),
    "variable of a secret": (
        lambda _: {"secrets": ["hub"], "program": {"env": {"HF_TOKEN": "{run_id}"}}},
        "program.env.HF_TOKEN: duplicate",
    ),
    "no such source": (lambda _: {"program": {"source": "cod"}}, "program.source: missing-source"),
    "source outside of the repository": (
        lambda _: {"program": {"source": "../elsewhere"}},
        "program.source: source-outside",
    ),
    "link out of the source": (link, "program.source: link-outside"),
    "source that is too large": (large, "program.source: source-too-large"),
    "secret in the source": (
        lambda p: {
            "program": {
                "source": write(p, "code/key.py", "K = 'AKIA" + "A" * 16 + "'").split("/")[0]
            }
        },
        "program.source: key.py: plaintext-secret",
    ),
    "script that is not packed": (
        lambda _: {"program": {"command": ["tran.py"]}},
        "program.command[0]: missing-script",
    ),
    "script that git ignores": (ignored, "program.command[0]: missing-script"),
    "no such DeepSpeed configuration": (
        lambda _: {"program": {"launcher": "deepspeed", "deepspeed": "no.json"}},
        "program.deepspeed: missing-file",
    ),
    "DeepSpeed configuration of another launcher": (
        lambda p: {
            "nodes": 1,
            "gpusPerNode": 1,
            "program": {"launcher": "python", "deepspeed": write(p, "d.json", {})},
        },
        "program.deepspeed: launcher-setting",
    ),
    "batch that is not micro x steps x ranks": (
        lambda p: zero(
            p, train_batch_size=64, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=2
        ),
        "program.deepspeed: ds.json: train_batch_size: batch-size",
    ),
    "offload of parameters without ZeRO-3": (
        lambda p: zero(p, zero_optimization={"stage": 2, "offload_param": {"device": "cpu"}}),
        "program.deepspeed: ds.json: zero_optimization.offload_param: zero-stage",
    ),
    "offload to a read-only path": (
        lambda p: zero(
            p,
            zero_optimization={
                "stage": 3,
                "offload_param": {"device": "nvme", "nvme_path": "/data"},
            },
        ),
        "program.deepspeed: ds.json: zero_optimization.offload_param.nvme_path: offload-path",
    ),
    "offload beyond the node's memory": (
        lambda p: {
            "program": zero(p, zero_optimization=OFFLOAD)["program"]
            | {"modelParameters": 400_000_000_000}
        },
        "program.deepspeed: ds.json: zero_optimization.offload_optimizer and offload_param: offload-memory",
    ),
    "Accelerate's number of processes": (
        lambda p: accelerate(p, num_processes=4, machine_rank=0, distributed_type="MULTI_GPU"),
        "program.accelerate: acc.yaml: num_processes: world-size\n"
        "program.accelerate: acc.yaml: machine_rank: platform-setting",
    ),
    "configuration of Accelerate for SageMaker": (
        lambda p: accelerate(
            p, compute_environment="AMAZON_SAGEMAKER", distributed_type="DATA_PARALLEL", region="x"
        ),
        "program.accelerate: acc.yaml: compute_environment: other-platform",
    ),
    "configuration of Accelerate for TPUs": (
        lambda p: accelerate(p, distributed_type="XLA"),
        "program.accelerate: acc.yaml: distributed_type: other-platform",
    ),
    "Accelerate starts mpirun": (
        lambda p: accelerate(p, mpirun_config={"mpirun_hostfile": "hosts"}),
        "program.accelerate: acc.yaml: mpirun_config: platform-setting",
    ),
    "hosts of Accelerate's DeepSpeed": (
        lambda p: accelerate(
            p,
            distributed_type="DEEPSPEED",
            deepspeed_config={
                "deepspeed_hostfile": "hosts",
                "deepspeed_multinode_launcher": "standard",
            },
        ),
        "program.accelerate: acc.yaml: deepspeed_config.deepspeed_hostfile: platform-setting",
    ),
    "DeepSpeed configuration that Accelerate's names and is not packed": (
        lambda p: accelerate(
            p, deepspeed_config={"deepspeed_config_file": write(p, "z3.json", {})}
        ),
        "program.accelerate: acc.yaml: deepspeed_config.deepspeed_config_file: missing-file",
    ),
    "fp16 and bf16 of DeepSpeed": (
        lambda p: zero(p, fp16={"enabled": True}, bf16={"enabled": True}),
        "program.deepspeed: ds.json: two-precisions",
    ),
    "fp16 and bf16 in the file that Accelerate's names": (
        lambda p: accelerate(p, deepspeed_config={"deepspeed_config_file": packed_zero(p)}),
        "program.accelerate: acc.yaml: deepspeed_config.deepspeed_config_file: z.json: two-precisions",
    ),
    "fp16 of Accelerate and bf16 of its DeepSpeed": (
        lambda p: accelerate(
            p,
            mixed_precision="fp16",
            deepspeed_config={"deepspeed_config_file": packed_zero(p, fp16=False)},
        ),
        "program.accelerate: acc.yaml: mixed_precision: two-precisions",
    ),
    "fp16 and bf16 of Accelerate": (
        lambda p: accelerate(p, mixed_precision="bf16", fp16=True),
        "program.accelerate: acc.yaml: mixed_precision: two-precisions",
    ),
    "module that is not packed": (
        lambda p: command("-m", "package.train", files=(p, "code/package/__init__.py")),
        "program.command: missing-module",
    ),
    "package that is not a program": (
        lambda p: command("-m", "package", files=(p, "code/package/__init__.py")),
        "program.command: missing-module",
    ),
    "module next to the source": (
        lambda p: command("-m", "package.train", files=(p, "package/train.py")),
        "program.command: missing-module",
    ),
    "module that the image does not contain": (
        lambda p: command(
            *("-m", "tranig.train"),
            files=(p, "training/image/requirements.txt"),
        ),
        "program.command: missing-module",
    ),
    "script after the interpreter that is not packed": (
        lambda _: command("python3", "-u", "-X", "dev", "tran.py"),
        "program.command[0]: missing-script",
    ),
    "option of the launcher": (
        lambda _: command("--nproc-per-node=2", "train.py"),
        "program.command[0]: option-first",
    ),
    **{
        f"launcher in the command: {text}": (
            nested(words),
            "program.command[0]: nested-launcher",
        )
        for words in NESTED
        for text in [" ".join(words)]
    },
    "unreachable tracking server": (
        lambda _: {"program": {"trackingUri": "http://mlflow.example.com"}},
        "program.trackingUri: unreachable",
    ),
    "tracking server on the pod's own address": (
        lambda _: {"program": {"trackingUri": "http://localhost:5000"}},
        "program.trackingUri: unreachable",
    ),
    "tracking file": (
        lambda _: {"program": {"trackingUri": "sqlite:////checkpoints/mlflow.db"}},
        "program.trackingUri: invalid-uri",
    ),
    "credentials of a tracking server": (
        lambda _: {"program": {"trackingUri": "https://me:pass@mlflow.example.com:29500"}},
        "program.trackingUri: plaintext-secret",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_mistake_is_one_line(project: Path, case: str) -> None:
    prepare, expected = WRONG[case]
    changed = prepare(project)
    with pytest.raises(ConfigError) as caught:
        load(project, **changed)
    check_issues("programs", case, caught.value, expected)


RIGHT: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a literal in braces": lambda _: {
        "program": {"command": ["train.py", "{{literal}}", '{"a": 1}']}
    },
    "mpirun in an mpijob": lambda _: {"jobKind": "mpijob", "program": {"launcher": "mpirun"}},
    "python with one rank": lambda _: {
        "nodes": 1,
        "gpusPerNode": 1,
        "program": {"launcher": "python"},
    },
    "a tunable of NCCL": lambda _: {
        "program": {"env": {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "4", "PATH": "/mine"}}
    },
    "a batch that fits": lambda p: zero(
        p, train_batch_size=128, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=2
    ),
    "a batch that the program sets": lambda p: zero(p, train_batch_size="auto"),
    "offload that fits": lambda p: {
        "program": zero(p, zero_optimization=OFFLOAD)["program"]
        | {"modelParameters": 7_000_000_000}
    },
    "accelerate for these ranks": lambda p: accelerate(p, num_processes=16, num_machines=2),
    "a link inside the source": lambda p: (p / "code/again.py").symlink_to("train.py") or {},  # type: ignore[func-returns-value]
    "a program of the image": lambda _: {
        "program": {"source": None, "command": ["-m", "their.training"]}
    },
    "a program of the image with a packed configuration": lambda p: command(
        "-m", "torchtitan.train", files=(p, "code/torchtitan/config.toml")
    ),
    "a packed module": lambda p: command("-m", "package.train", files=(p, "code/package/train.py")),
    "a packed package": lambda p: command("-m", "package", files=(p, "code/package/__main__.py")),
    "a program of a wrapper": lambda _: command("env", "A=1", "python", "train.py", "torchrun"),
    "a shell": lambda _: command("bash", "-c", "echo torchrun; python train.py"),
    "Python's options": lambda _: command("python", "-O", "train.py", "--launcher", "mpirun"),
    "one precision of two": lambda p: zero(p, fp16={"enabled": "auto"}, bf16={"enabled": True}),
    "Accelerate names a packed file": lambda p: accelerate(
        p,
        mixed_precision="bf16",
        deepspeed_config={"deepspeed_config_file": packed_zero(p, fp16=False)},
    ),
    "Accelerate names the mounted file": lambda p: {
        "program": accelerate(
            p, deepspeed_config={"deepspeed_config_file": "/etc/trainyard/deepspeed.json"}
        )["program"]
        | {"deepspeed": write(p, "ds.json", {"bf16": {"enabled": True}})}
    },
    "the pods' interface": lambda _: {"network": {"interface": "eth0"}},
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_close_to_a_mistake_is_accepted(project: Path, case: str) -> None:
    load(project, **RIGHT[case](project))


def test_all_mistakes_of_a_program_are_shown_at_once(project: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(
            project,
            program={
                "source": "none",
                "command": ["{x}"],
                "env": {"RANK": "1"},
                "launcher": "mpirun",
            },
        )
    assert len(caught.value.issues) == 4


def test_without_program_the_trainer_needs_configuration_and_dataset(project: Path) -> None:
    bare = {k: v for k, v in RUN_FILE.items() if k not in ("config", "dataset")}
    write_runs(project, bare)
    with pytest.raises(ConfigError) as caught:
        run_files.load(("llama",), platform(), {"trainer": IMAGE}, project)
    check_issues(
        "programs", "neither program nor config", caught.value, "config: missing\ndataset: missing"
    )


def test_the_page_lists_every_placeholder_with_its_variable() -> None:
    page = (ROOT / "docs/programs.md").read_text()
    for name, one in contract.PLACEHOLDERS.items():
        assert f"| `{{{name}}}` | `{one.variable}` |" in page


def test_braces_that_are_no_placeholder_stay() -> None:
    facts = {"run_id": "a-v1"}
    assert expand('{"a": {"b": {}}} {run_id}', facts) == '{"a": {"b": {}}} a-v1'
    assert expand("{{run_id}}={run_id}", facts) == "{run_id}=a-v1"


def test_a_node_after_the_first_knows_its_rank_from_its_index_among_those() -> None:
    assert read_facts({contract.WORKER_INDEX_ENV: "0"})["node_rank"] == "1"
    assert read_facts({contract.NODE_RANK_ENV: "3"})["node_rank"] == "3"


def test_the_stacks_trainer_image_prepares_the_dataset_of_a_program(project: Path) -> None:
    other = IMAGE.replace("5" * 64, "7" * 64)
    run = load(project, dataset={"name": "web", "source": "/data/raw"}, nodes=1, image=other)
    preparation = Preparation.for_run(run)
    assert preparation is not None
    assert (run.image, preparation.image) == (other, IMAGE)
    assert load(project, dataset={"name": "web"}, nodes=1, image=other).dataset.image == ""
