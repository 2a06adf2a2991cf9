"""Tokenization: bytes, or a tokenizer of the `tokenizers` library."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trainer.prepare.dataset import BYTES_BOUNDARY, DatasetError, token_dtype
from trainer.prepare.names import BYTES, BYTES_VOCAB_SIZE, MOST_VOCABULARY, TRAIN

Tokens = npt.NDArray[np.unsignedinteger[Any]]

BOUNDARY_TOKENS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
"""End-of-document tokens; the first that exists in a tokenizer is used."""


class Encoder:
    vocab_size: int
    boundary: int
    record: Mapping[str, Any]
    """Its description in the index."""
    file: bytes | None = None
    """Content of the dataset's tokenizer.json; None without one."""

    @property
    def dtype(self) -> str:
        return token_dtype(self.vocab_size)

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Return the tokens of each text, without a boundary."""
        raise NotImplementedError


class BytesEncoder(Encoder):
    """Every byte is a token."""

    vocab_size = BYTES_VOCAB_SIZE
    boundary = BYTES_BOUNDARY
    record: Mapping[str, Any] = {"kind": BYTES}

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        return [np.frombuffer(text, dtype=np.uint8).astype(self.dtype) for text in texts]


class TokenizerEncoder(Encoder):
    """A tokenizer of the `tokenizers` library, parallel over all cores."""

    def __init__(self, content: bytes, boundary_token: str | None, where: str) -> None:
        """Load tokenizer.json; `where` names it in a DatasetError.

        `boundary_token` None selects the first of BOUNDARY_TOKENS that it has.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise DatasetError(
                f"{where}: not a tokenizer that `tokenizers` loads: {reason}"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # A special token spelled in the text stays text, so that no document can contain a boundary.
        self._tokenizer.encode_special_tokens = True
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=0) + 1
        if self.vocab_size > MOST_VOCABULARY:
            raise DatasetError(
                f"{where}: its largest token is {self.vocab_size - 1}; must be below {MOST_VOCABULARY}"
            )
        wanted = BOUNDARY_TOKENS if boundary_token is None else (boundary_token,)
        found = [token for token in wanted if token in vocabulary]
        if not found:
            raise DatasetError(
                f"{where}: no boundary token {' or '.join(wanted)}; "
                "choose one of its tokens with --boundary-token"
            )
        self.boundary = vocabulary[found[0]]
        digest = hashlib.sha256(content).hexdigest()
        self.record = {"kind": "tokenizers", "boundary_token": found[0], "sha256": digest}
        self.file = content

    def encode(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Return the tokens of each text; invalid UTF-8 becomes U+FFFD."""
        decoded = [text.decode("utf-8", "replace") for text in texts]
        try:
            encodings = self._tokenizer.encode_batch_fast(decoded, add_special_tokens=False)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise DatasetError(f"--tokenizer: cannot encode the text: {reason}") from None
        found: list[Tokens] = [np.array(e.ids, dtype=self.dtype) for e in encodings]
        if any((tokens == self.boundary).any() for tokens in found):
            raise DatasetError(
                f"--boundary-token: {self.record['boundary_token']!r} occurs as an ordinary token; "
                "choose a special token"
            )
        return found


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> TokenizerEncoder:
    """Train a byte-level BPE tokenizer of `vocab_size` tokens (>= 257); deterministic."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOUNDARY_TOKENS[0]],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return TokenizerEncoder(tokenizer.to_str().encode(), BOUNDARY_TOKENS[0], "--tokenizer")


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """A tokenizer, possibly still to be trained."""

    identity: str
    """Part of the dataset's identity: equal identities and texts give equal tokenizers."""
    make: Callable[[Iterable[str]], Encoder]
    """Called once, if the dataset does not exist, with texts to train on. Raises DatasetError."""
    boundary: str = ""
    """Boundary token of a tokenizer that is trained; empty: it is not."""


BYTES_TOKENIZER: Final = TokenizerSpec(identity=BYTES, make=lambda _: BytesEncoder())


def parse_tokenizer_choice(asked: str, boundary_token: str | None) -> TokenizerSpec:
    """Parse `bytes`, `train:VOCAB` or the path of a tokenizer.json. Raises DatasetError."""
    if asked == BYTES:
        return BYTES_TOKENIZER
    if asked.startswith(TRAIN):
        size = asked.removeprefix(TRAIN)
        if not size.isdecimal() or not BYTES_VOCAB_SIZE <= int(size) <= MOST_VOCABULARY:
            raise DatasetError(
                f"--tokenizer: got {asked!r}; must be {TRAIN}VOCAB with VOCAB from {BYTES_VOCAB_SIZE}"
                f" to {MOST_VOCABULARY}"
            )
        return TokenizerSpec(
            identity=f"{TRAIN}{int(size)}",
            make=partial(train_tokenizer, vocab_size=int(size)),
            boundary=BOUNDARY_TOKENS[0],
        )
    try:
        content = Path(asked).read_bytes()
    except OSError as error:
        raise DatasetError(f"--tokenizer: {asked}: {error.strerror}") from None
    encoder = TokenizerEncoder(content, boundary_token, asked)
    identity = f"{encoder.record['sha256']} {encoder.record['boundary_token']}"
    return TokenizerSpec(identity=identity, make=lambda _: encoder)
