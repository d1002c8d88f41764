"""mini-GLUE: nine small tasks (and AX) in generated English, with GLUE's columns, labels, splits and metrics.

Every task is a mixture of kinds of example, easy and hard ones (`mini_sentences.py`, `mini_pairs.py`). So examples
differ in how many layers they need, which is what early exit lives on. Nothing here is taken from GLUE's data. The text
is the same in every process and every version of Python.
"""

from collections.abc import Callable
from functools import lru_cache

from trainables.data import mini_pairs as pairs
from trainables.data import mini_sentences as sentences
from trainables.data.mini_draw import Draw, Example
from trainables.data.tasks import Task

SEED = 0

Kind = Callable[[Draw], Example]


def is_generated(task: Task) -> bool:
    """Whether there are generated examples of the task."""
    return task.name in _MIXTURES


def check_generated(task: Task) -> None:
    """Passes if there are generated examples of the task.

    Raises:
        ValueError: there are none.
    """
    if not is_generated(task):
        menu = ", ".join(_MIXTURES)
        raise ValueError(f"no data are generated for {task.name}; allowed: --data FOLDER; mini has {menu}")


def generate(task: Task, split: str) -> list[tuple[int, tuple[str, ...], int | float | None]]:
    """Rows of a split: id, one text per column, label (None on test). No text occurs twice in a task.

    Raises:
        ValueError: none are generated for this task.
    """
    check_generated(task)
    examples = _examples(task.name)[split]
    labelled = split not in task.test_splits
    return [(row, texts, label if labelled else None) for row, (texts, label) in enumerate(examples)]


@lru_cache(maxsize=None)
def _examples(name: str) -> dict[str, list[Example]]:
    draw = Draw(f"{SEED} {name}")
    seen: set[tuple[str, ...]] = set()
    splits = {}
    for split, size in _SIZES[name].items():
        mixture = _MISMATCHED_MNLI if "mismatched" in split else _MIXTURES[name]
        by_share = [kind for share, kind in mixture for _ in range(share)]
        splits[split] = [_unseen(draw, draw.one(by_share), seen) for _ in range(size)]
    return splits


def _unseen(draw: Draw, kind: Kind, seen: set[tuple[str, ...]]) -> Example:
    """An example of this kind with texts that differ from each other and from all before, which are noted."""
    texts, label = kind(draw)
    while texts in seen or len(set(texts)) < len(texts):
        texts, label = kind(draw)
    seen.add(texts)
    return texts, label


_OTHER_GENRE = {  # words of matched sentences and what stands for them in mismatched ones
    "teacher": "pilot",
    "doctor": "judge",
    "apple": "coat",
    "pear": "shirt",
    "plum": "hat",
    "fruit": "clothing",
    "garden": "harbour",
    "friend": "stranger",
}


def _mismatched(kind: Kind) -> Kind:
    def in_other_genre(draw: Draw) -> Example:
        texts, label = kind(draw)
        return tuple(" ".join(_OTHER_GENRE.get(word, word) for word in text.split()) for text in texts), label

    return in_other_genre


Mixture = tuple[tuple[int, Kind], ...]  # shares of the kinds of example, in hundredths

_MNLI: Mixture = (
    (20, pairs.same_or_less_said),
    (12, pairs.more_general),
    (6, pairs.more_special),
    (18, pairs.more_said),
    (6, pairs.someone_else),
    (18, pairs.denied),
    (8, pairs.reversed),
    (12, pairs.denied_premise),
)
_MIXTURES: dict[str, Mixture] = {
    "sst2": ((60, sentences.plain_opinion), (15, sentences.negated_opinion), (25, sentences.contrasting_opinion)),
    "rte": ((50, pairs.told), (18, pairs.mixed_up), (32, pairs.untrue)),
    "qnli": (
        (50, pairs.answered),
        (20, pairs.off_topic),
        (10, pairs.nothing_said),
        (12, pairs.answers_another),
        (8, pairs.about_another),
    ),
    "cola": (
        (25, sentences.word_form),
        (20, sentences.noun_phrase_agreement),
        (25, sentences.word_order),
        (15, sentences.near_agreement),
        (15, sentences.far_agreement),
    ),
    "mrpc": (
        (65, pairs.paraphrase),
        (15, pairs.denial),
        (9, pairs.refusal),
        (3, pairs.double_denial),
        (4, pairs.opposite_event),
        (4, pairs.other_person),
    ),
    "mnli": _MNLI,
    "qqp": (
        (37, pairs.duplicates),
        (35, pairs.trivia),
        (15, pairs.other_topic),
        (4, pairs.other_deed),
        (9, pairs.other_answer),
    ),
    "stsb": ((65, pairs.graded_events), (15, pairs.denied_event), (20, pairs.unrelated)),
    "wnli": ((55, pairs.fit), (25, pairs.fit_enough), (20, pairs.favour)),
    "ax": _MNLI,
}
_MISMATCHED_MNLI = tuple((share, _mismatched(kind)) for share, kind in _MNLI)
_SIZES = {name: {"train": 1000, "dev": 250, "test": 200} for name in _MIXTURES} | {
    "mnli": {"train": 1200, "dev_matched": 200, "dev_mismatched": 200, "test_matched": 150, "test_mismatched": 150},
    "ax": {"test": 150},
}
