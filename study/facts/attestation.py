"""What a worker says that it trains on and with, held against what the plan and the launch say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from trainables.runs.trial import Content

_WORDS = {
    "data_fingerprint": "data",
    "tokens_digest": "tokenised data",
    "backbone_fingerprint": "backbone",
    "backbone_digest": "files of the backbone",
    "tokenizer_fingerprint": "tokenizer",
}
_DIGESTS = ("tokens_digest", "backbone_digest")  # known once the first trial of an arm has said them


class Code(Protocol):
    """What a process runs."""

    @property
    def code_digest(self) -> str: ...

    @property
    def versions(self) -> Mapping[str, str]: ...


class Attestation(Content, frozen=True, kw_only=True):
    """What a trial is made of and the code that trains it: found by a worker, or expected of it."""

    code_digest: str  # of the sources of the packages that make numbers
    versions: Mapping[str, str]  # of Python and of packages; what is not installed is left out


def contradictions(attested: Attestation, expected: Attestation) -> list[str]:
    """What is not as expected, in words. Builds of one version, `2.8.0+cpu` and `2.8.0+cu128`, do not differ."""
    pairs = [(word, getattr(attested, name), getattr(expected, name)) for name, word in _WORDS.items()]
    known = [pair for pair, name in zip(pairs, _WORDS, strict=True) if name not in _DIGESTS or pair[2] is not None]
    differing = [f"{word} {found}, not {wanted}" for word, found, wanted in known if found != wanted]
    return differing + other_code(attested, expected)


def other_code(found: Code, wanted: Code) -> list[str]:
    """Which code and versions are others than wanted, in words; what is not installed at both places is left out."""
    both = [name for name in found.versions if name in wanted.versions]
    pairs = [("code", found.code_digest, wanted.code_digest)]
    pairs += [(name, _release(found.versions[name]), _release(wanted.versions[name])) for name in both]
    return [f"{word} {there}, not {here}" for word, there, here in pairs if there != here]


def agree_but_for_digests(attested: Attestation, expected: Attestation) -> bool:
    """Whether all that a launch knows by itself is as expected; in the rest the first worker may have been in error."""
    return not contradictions(attested, replace(expected, **dict.fromkeys(_DIGESTS)))


def _release(version: str) -> str:
    return version.partition("+")[0]
