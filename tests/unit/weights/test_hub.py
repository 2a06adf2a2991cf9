"""Models from a hub: what is fetched is what the hub names, and the token stays with the hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.weights.hub_server import COMMIT, MODEL, Handler, HubServer, serve
from trainer.prepare.state import RetryableError, no_progress
from trainer.weights import fetch as fetching
from trainer.weights.__main__ import main
from trainer.weights.fetch import MANIFEST_FILE
from trainer.weights.places import Hub, WeightsError
from trainer.weights.reference import HubModel

SOURCE = f"hub:{MODEL}@{COMMIT}"
WEIGHTS = bytes(range(256)) * 4096
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"pickled",
    "onnx/config.json": b"{}",
    ".gitattributes": b"",
}
FETCHED = {"config.json", "model.safetensors", "tokenizer.json", MANIFEST_FILE}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve(HubServer(files=dict(FILES))) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def fetch(folder: Path) -> bool:
    return fetching.fetch(hub_of(COMMIT), SOURCE, folder, no_progress)


def hub_of(commit: str) -> Hub:
    organization, _, name = MODEL.partition("/")
    return Hub(HubModel(organization=organization, name=name, commit=commit))


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_model_is_fetched_once_with_what_transformers_reads(
    hub: HubServer, tmp_path: Path
) -> None:
    folder = tmp_path / "models" / "tiny"
    assert fetch(folder)
    assert names(folder) == FETCHED
    assert names(folder.parent) == {"tiny"}
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    recorded = json.loads((folder / MANIFEST_FILE).read_text())
    assert (
        recorded["files"]["config.json"]["sha256"]
        == hashlib.sha256(FILES["config.json"]).hexdigest()
    )
    asked = len(hub.asked)
    assert not fetch(folder)
    assert len(hub.asked) == asked


def test_the_token_reaches_the_hub_and_no_host_that_it_redirects_to(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serve(HubServer(files={})) as store:
        hub.store = store
        assert fetch(tmp_path / "tiny")
        assert [one.token for one in store.asked] == [""]
    assert (tmp_path / "tiny" / "model.safetensors").read_bytes() == WEIGHTS
    assert {one.token for one in hub.asked} == {"hf_secret"}


def test_another_process_fetches_what_a_killed_one_has_not(hub: HubServer, tmp_path: Path) -> None:
    def stop(handler: Handler, _: bytes) -> bool:
        handler.refuse(503)
        return True

    hub.answer["model.safetensors"] = stop
    with pytest.raises(RetryableError, match="HTTP 503"):
        fetch(tmp_path / "tiny")
    assert not (tmp_path / "tiny").exists()
    stale = tmp_path / ".tiny.fetching/files/.cache/huggingface/download/x.1234.incomplete"
    stale.write_bytes(b"half")
    del hub.answer["model.safetensors"]
    hub.asked.clear()
    assert fetch(tmp_path / "tiny")
    assert hub.paths("config.json") == []
    assert len(hub.paths("model.safetensors")) == 1
    assert names(tmp_path / "tiny") == FETCHED


def test_sigterm_ends_a_download_and_is_no_attempt(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    over, sent = threading.Event(), []

    def slow(handler: Handler, content: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        os.kill(os.getpid(), signal.SIGTERM)
        with contextlib.suppress(OSError):  # the reader has left
            for start in range(0, len(content) - 1000, 1000):
                sent.append(handler.wfile.write(content[start : start + 1000]))
                over.wait(0.02)
        handler.close_connection = True
        return True

    hub.answer["model.safetensors"] = slow
    state, before = tmp_path / "state.json", signal.getsignal(signal.SIGTERM)
    words = ["weights", "--out", str(tmp_path / "tiny"), "--state", str(state)]
    monkeypatch.setattr("sys.argv", [*words, "--source", SOURCE])
    try:
        assert main() == 130
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)
    found = json.loads(state.read_text())
    assert (found["state"], found["text"], found["attempt"]) == ("running", "interrupted", 0)
    assert sum(sent) < len(WEIGHTS) // 2, "it waited for the end of the download"


def test_progress_counts_bytes(hub: HubServer, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    total = sum(len(FILES[name]) for name in FETCHED - {MANIFEST_FILE})

    def progress(what: str, done: int, of: int = 0, /) -> None:
        seen.append((what, done, of))

    fetching.fetch(hub_of(COMMIT), SOURCE, tmp_path / "tiny", progress)
    assert seen[-1] == ("fetching", total, total)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_content_that_is_not_what_the_hub_names_is_not_published(
    hub: HubServer, tmp_path: Path, name: str
) -> None:
    def forged(handler: Handler, content: bytes) -> bool:
        handler.send(b"x" * len(content))
        return True

    hub.answer[name] = forged
    with pytest.raises(RetryableError, match=f"{name}: its content differs from the checksum"):
        fetch(tmp_path / "tiny")
    assert not (tmp_path / "tiny").exists()
    del hub.answer[name]
    assert fetch(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("gated", "asked_for", "sent", "commit", "said"),
    [
        (True, "", "hf_secret", COMMIT, "the model is gated: accept its terms"),
        (False, "hf_secret", "", COMMIT, "HF_TOKEN is not set: add its team secret"),
        (False, "", "", "0" * 40, "the model has no commit 0000"),
    ],
)
def test_a_refusal_is_one_line_with_its_cause_and_without_the_token(
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    gated: bool,
    asked_for: str,
    sent: str,
    commit: str,
    said: str,
) -> None:
    hub.gated, hub.token = gated, asked_for
    monkeypatch.setenv("HF_TOKEN", sent)
    with pytest.raises(WeightsError, match=said) as caught:
        hub_of(commit).files()
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and "hf_secret" not in text
    assert ("is not set" in text) == bool(asked_for)


ANSWERS: dict[str, Any] = {
    "not a list": {"error": "x"},
    "an entry without a size": [{"type": "file", "path": "config.json", "oid": "0" * 40}],
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_malformed_list_of_files_is_one_line(hub: HubServer, tmp_path: Path, kind: str) -> None:
    hub.tree = lambda _: ANSWERS[kind]
    with pytest.raises(WeightsError, match="not that of a hub of models; check HF_ENDPOINT"):
        fetch(tmp_path / "tiny")


@pytest.mark.parametrize("name", ["../config.json", "/etc/config.json", ".hidden.json", "a/b.json"])
def test_files_outside_of_the_folder_are_not_fetched(
    hub: HubServer, tmp_path: Path, name: str
) -> None:
    hub.tree = lambda found: [*found, found[0] | {"path": name}]
    assert fetch(tmp_path / "tiny")
    assert names(tmp_path / "tiny") == FETCHED
    assert len({one.path for one in hub.asked if "/resolve/" in one.path}) == len(FETCHED) - 1


def test_pickled_weights_are_not_fetched(hub: HubServer, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(WeightsError, match=r"has no model\.safetensors"):
        fetch(tmp_path / "tiny")


def test_an_index_that_names_a_missing_shard_is_refused(hub: HubServer, tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}}
    hub.files["model.safetensors.index.json"] = json.dumps(index).encode()
    with pytest.raises(WeightsError, match="names model-00001-of-00002"):
        fetch(tmp_path / "tiny")


def test_a_folder_with_other_content_is_neither_used_nor_changed(
    hub: HubServer, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(WeightsError, match="was not written by this command"):
        fetch(folder)
    (folder / MANIFEST_FILE).write_text(json.dumps({"source": "hub:acme/other@1", "files": {}}))
    with pytest.raises(WeightsError, match="holds 'hub:acme/other@1'"):
        fetch(folder)
    assert (folder / "mine.txt").read_text() == "mine"
    assert hub.asked == []


def test_a_damaged_folder_is_reported(hub: HubServer, tmp_path: Path) -> None:
    assert fetch(tmp_path / "tiny")
    (tmp_path / "tiny" / "model.safetensors").write_bytes(b"short")
    with pytest.raises(WeightsError, match=r"model\.safetensors is missing or not of"):
        fetch(tmp_path / "tiny")


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://hub.example",
        "file:///etc",
        "ftp://hub.example",
        "hub.example",
        "https://u:p@hub.example",
    ],
)
def test_an_endpoint_without_https_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(WeightsError, match="is not an HTTPS address"):
        fetch(tmp_path / "tiny")


def test_the_command_reports_success_and_a_missing_model(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = tmp_path / "state.json"
    words = ["weights", "--out", str(tmp_path / "tiny"), "--state", str(state), "--source"]
    monkeypatch.setattr("sys.argv", [*words, SOURCE])
    assert main() == 0
    assert json.loads(state.read_text())["state"] == "ready"
    monkeypatch.setattr(
        "sys.argv", [*words[:2], str(tmp_path / "o"), *words[3:], f"hub:acme/none@{COMMIT}"]
    )
    assert main() == 78
    failed = json.loads(state.read_text())
    assert (failed["state"], "HTTP 404" in failed["text"]) == ("failed", True)
    assert "Traceback" not in capsys.readouterr().err


def test_too_little_space_is_reported_before_a_download(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("trainer.prepare.staging.shutil.disk_usage", lambda _: full)
    with pytest.raises(WeightsError, match=r"0\.0 GB to write, .* free some space"):
        fetch(tmp_path / "tiny")
    assert hub.paths("config.json") == []
