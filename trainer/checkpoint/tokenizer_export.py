"""The files besides the weights with which transformers tokenizes, and stops, as the dataset did.

transformers builds the tokenizer that it has registered for a model type, with that class's own
pre-tokenizer, special tokens and padding, unless the files say otherwise; see `_load_as_written`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trainer.prepare.dataset import BYTES_BOUNDARY, TOKENIZER_FILE
from trainer.prepare.names import BYTES

CONFIG_FILE: Final = "config.json"
GENERATION_FILE: Final = "generation_config.json"
TOKENIZER_CONFIG_FILE: Final = "tokenizer_config.json"

_BYTES_BOUNDARY_TOKEN: Final = "<|endoftext|>"


class TokenizerExportError(Exception):
    """transformers cannot be given the tokens of this checkpoint's dataset."""


def export_files(
    config: Mapping[str, Any], tokens: Mapping[str, Any], tokenizer: bytes | None
) -> dict[str, bytes]:
    """Return config.json, generation_config.json and the tokenizer's files by name.

    `tokens` is the token format that the checkpoint records, `tokenizer` its tokenizer.json (None
    for bytes). The files have been loaded with transformers and compared. Raises
    TokenizerExportError.
    """
    description, boundary_token = _dataset_tokenizer(tokens, tokenizer)
    boundary = int(tokens["boundary"])
    # A document of the dataset begins after a boundary and ends with one.
    ends = {"bos_token_id": boundary, "eos_token_id": boundary}
    own = {key: value for key, value in config.items() if key != "tokenizer_class"}
    files = {
        CONFIG_FILE: _json({**own, **ends}),
        GENERATION_FILE: _json({**ends, "pad_token_id": boundary}),
        TOKENIZER_FILE: json.dumps(description, ensure_ascii=False).encode(),
        TOKENIZER_CONFIG_FILE: _json(_tokenizer_config(boundary_token)),
    }
    differences = _differences(files, description, boundary, boundary_token)
    if differences:
        files[TOKENIZER_CONFIG_FILE] = _json(_load_as_written(boundary_token))
        differences = _differences(files, description, boundary, boundary_token)
    if differences:
        raise TokenizerExportError(
            f"transformers does not load the dataset's tokenizer for model type "
            f"{config.get('model_type')}: {'; '.join(differences)}"
        )
    return files


def _tokenizer_config(boundary_token: str) -> dict[str, Any]:
    return {
        # Loads tokenizer.json as it is, in transformers 4 and 5.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": boundary_token,
        "eos_token": boundary_token,
        "clean_up_tokenization_spaces": False,
        # As when the dataset was prepared: a special token spelled in a text stays text.
        "split_special_tokens": True,
    }


def _load_as_written(boundary_token: str) -> dict[str, Any]:
    """Return a configuration for types whose registered class wins over `tokenizer_class` (Qwen2).

    An `auto_map` keeps transformers from doing so. The class that it names does not exist and is
    never looked for without `trust_remote_code=True`, which then fails.
    """
    nowhere = "no_remote_code.LoadWithoutTrustRemoteCode"
    return {**_tokenizer_config(boundary_token), "auto_map": {"AutoTokenizer": [None, nowhere]}}


def _dataset_tokenizer(
    tokens: Mapping[str, Any], tokenizer: bytes | None
) -> tuple[dict[str, Any], str]:
    """Return the content of tokenizer.json and the boundary token."""
    if tokens["kind"] == BYTES:
        return _byte_tokenizer(), _BYTES_BOUNDARY_TOKEN
    if tokenizer is None:
        raise TokenizerExportError(f"the checkpoint has no {TOKENIZER_FILE}")
    if hashlib.sha256(tokenizer).hexdigest() != tokens["sha256"]:
        raise TokenizerExportError(
            f"the checkpoint's {TOKENIZER_FILE} is not the one that the dataset was prepared with"
        )
    description: dict[str, Any] = json.loads(tokenizer)
    # The dataset was prepared without any of them. ByteLevel only moves offsets.
    description["truncation"] = description["padding"] = None
    if (description.get("post_processor") or {}).get("type") != "ByteLevel":
        description["post_processor"] = None
    return description, str(tokens["boundary_token"])


def _byte_tokenizer() -> dict[str, Any]:
    """Describe a tokenizer whose tokens 0 to 255 are the bytes of UTF-8."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(_BYTES_BOUNDARY_TOKEN, normalized=False)])
    assert tokenizer.token_to_id(_BYTES_BOUNDARY_TOKEN) == BYTES_BOUNDARY
    described: dict[str, Any] = json.loads(tokenizer.to_str())
    return described


def _byte_characters() -> list[str]:
    """Return the character that stands for each byte in a ByteLevel vocabulary.

    Printable characters of Latin-1 stand for themselves, the others for those from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _differences(
    files: Mapping[str, bytes], wanted: Mapping[str, Any], boundary: int, boundary_token: str
) -> list[str]:
    """Load the files with transformers and return what is not as in the dataset."""
    from tokenizers import Tokenizer
    from transformers.models.auto.tokenization_auto import AutoTokenizer
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with tempfile.TemporaryDirectory() as name:
            for file, content in files.items():
                (Path(name) / file).write_bytes(content)
            loaded: Any = AutoTokenizer.from_pretrained(name, local_files_only=True)
    # Whatever transformers raises on a configuration, a user needs its reason.
    except Exception as error:
        return [f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"]
    finally:
        logging.set_verbosity(level)
    backend = loaded.backend_tokenizer
    found = json.loads(backend.to_str())
    read = Tokenizer.from_str(json.dumps(wanted))
    # Through the library, which writes defaults out.
    written = json.loads(read.to_str())
    differences = [
        f"{type(loaded).__name__} has another {part}"
        for part in ("normalizer", "pre_tokenizer", "model", "decoder")
        if found[part] != written[part]
    ]
    if backend.get_vocab() != read.get_vocab():
        found_size, wanted_size = len(backend.get_vocab()), len(read.get_vocab())
        differences.append(f"another vocabulary ({found_size} tokens, not {wanted_size})")
    if _added(found, boundary_token) != _added(written, boundary_token):
        differences.append("other added tokens")
    if backend.num_special_tokens_to_add(is_pair=False):
        differences.append("tokens added to every text")
    if not backend.encode_special_tokens:
        differences.append("special tokens are recognised in texts")
    if loaded.eos_token_id != boundary:
        differences.append(f"end of text is token {loaded.eos_token_id}, not {boundary}")
    return differences


def _added(description: Mapping[str, Any], boundary_token: str) -> list[Any]:
    """Return the added tokens except the boundary, which transformers always counts as special."""
    return [token for token in description["added_tokens"] if token["content"] != boundary_token]


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()
