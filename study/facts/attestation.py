"""The code of a launch, and the check that a worker has the same code and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from study.plans.resolved_plan import digest
from trainables import base_method
from trainables.runs.trial import Content
from trainables.schema import Typed

if TYPE_CHECKING:
    from study.drivers.messages import SmokeReport
    from study.facts.events import LaunchBegan

_WORDS = {
    "data_fingerprint": "data",
    "tokens_digest": "tokenised data",
    "backbone_fingerprint": "backbone",
    "backbone_digest": "backbone files",
    "tokenizer_fingerprint": "tokenizer",
}
_DIGESTS = ("tokens_digest", "backbone_digest")  # known once the first trial of an arm has reported them


class Provenance(Typed, frozen=True, kw_only=True):
    """The code and package versions of a launch."""

    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str  # of the training code
    included: Mapping[str, str] = {}  # method of an included folder -> digest of its files

    @classmethod
    def of(cls, launch: LaunchBegan) -> Provenance:
        """Read the code and versions from a launch's event."""
        return cls(
            versions=launch.versions,
            git_commit=launch.git_commit,
            code_digest=launch.code_digest,
            included=launch.included or {},
        )

    def for_method(self, method: str) -> Provenance:
        """Return the provenance of one method; for a user's own method, the code digest also covers its files."""
        files = self.included.get(base_method(method))
        code = self.code_digest if files is None else digest([self.code_digest, files])
        return replace(self, code_digest=code, included={})


def join_code(method: str, launches: Sequence[LaunchBegan]) -> Provenance:
    """Join a method's code and versions over several launches: each value once, the latest last."""
    codes = [Provenance.of(launch).for_method(method) for launch in launches]
    names = dict.fromkeys(name for code in codes for name in code.versions)
    return Provenance(
        versions={name: _joined(code.versions.get(name) for code in codes) for name in names},
        git_commit=_joined(code.git_commit for code in codes) or None,
        code_digest=_joined(code.code_digest for code in codes),
    )


def _joined(values: Iterable[str | None]) -> str:
    latest_first = dict.fromkeys(value for value in reversed([*values]) if value is not None)
    return ", ".join(reversed([*latest_first]))


class Attestation(Content, frozen=True, kw_only=True):
    """The data, backbone and code of a trial, as a worker finds them or as the launch expects them."""

    code_digest: str  # of the training code
    versions: Mapping[str, str]  # of Python and of the installed packages


def contradictions(attested: Attestation, expected: Attestation) -> list[str]:
    """List the differences; builds of the same version (`2.8.0+cpu`, `2.8.0+cu128`) count as equal."""
    pairs = [(word, getattr(attested, name), getattr(expected, name)) for name, word in _WORDS.items()]
    known = [pair for pair, name in zip(pairs, _WORDS, strict=True) if name not in _DIGESTS or pair[2] is not None]
    differing = [f"{word} {found}, not {wanted}" for word, found, wanted in known if found != wanted]
    return differing + other_code(attested, expected)


def other_code(found: Attestation | Provenance | SmokeReport, wanted: Attestation | Provenance) -> list[str]:
    """List the differences in code and versions; a package that either side lacks is ignored."""
    both = [name for name in found.versions if name in wanted.versions]
    pairs = [("code", found.code_digest, wanted.code_digest)]
    pairs += [(name, _release(found.versions[name]), _release(wanted.versions[name])) for name in both]
    return [f"{word} {there}, not {here}" for word, there, here in pairs if there != here]


def agree_but_for_digests(attested: Attestation, expected: Attestation) -> bool:
    """Check if everything agrees, ignoring the digests of tokenised data and backbone files."""
    return not contradictions(attested, replace(expected, **dict.fromkeys(_DIGESTS)))


def _release(version: str) -> str:
    return version.partition("+")[0]
