"""A generated corpus in mini-GLUE's words: pairs of sentences that belong together, and a control without order.

Made of the same kinds of example as mini-GLUE (`mini_glue.py`). No text of a dev or test split of
mini-GLUE is in it. The text is the same in every process and every version of Python.
"""

from functools import lru_cache
from itertools import islice

from trainables.data import mini_glue
from trainables.data.mini_glue import Draw
from trainables.data.tasks import TASKS

NUM_DOCUMENTS = 30_000
SEED = 0

Document = tuple[str, ...]  # its sentences

_OPINIONS = (mini_glue.plain_opinion, mini_glue.negated_opinion, mini_glue.contrasting_opinion)
_GRAMMATICAL = (
    mini_glue.word_form,
    mini_glue.noun_phrase_agreement,
    mini_glue.word_order,
    mini_glue.near_agreement,
    mini_glue.far_agreement,
)


@lru_cache(maxsize=1)
def mini_documents() -> tuple[Document, ...]:
    """Two sentences each: half are events retold, a quarter opinions that agree, a quarter correct mini_glue."""
    draw, excluded = Draw(f"{SEED} corpus"), _evaluated_texts()
    kinds = (_retold, _longer_retold, _opinions, _correct_sentences)
    documents: dict[Document, None] = {}
    while len(documents) < NUM_DOCUMENTS:
        document = draw.one(kinds)(draw)
        if len(set(document)) == len(document) and not excluded.intersection(document):
            documents[document] = None
    return tuple(documents)


def shuffled_documents() -> tuple[Document, ...]:
    """The control: all words of the corpus in random order, in documents and sentences as long as they were.

    Within documents alone it would be none: that two sentences share words is what retelling teaches.
    """
    words = iter(_mixed([word for document in mini_documents() for text in document for word in text.split()]))
    return tuple(
        tuple(" ".join(islice(words, len(text.split()))) for text in document) for document in mini_documents()
    )


def _retold(draw: Draw) -> Document:
    return mini_glue.paraphrase(draw)[0]


def _longer_retold(draw: Draw) -> Document:
    return mini_glue.told(draw)[0]


def _opinions(draw: Draw) -> Document:
    polarity = int(draw.chance(0.5))
    return _one_labelled(draw, _OPINIONS, polarity), _one_labelled(draw, _OPINIONS, polarity)


def _correct_sentences(draw: Draw) -> Document:
    return _one_labelled(draw, _GRAMMATICAL, 1), _one_labelled(draw, _GRAMMATICAL, 1)


def _one_labelled(draw: Draw, kinds: tuple[mini_glue.Kind, ...], wanted: int) -> str:
    """A sentence of this label."""
    texts, label = draw.one(kinds)(draw)
    while label != wanted:
        texts, label = draw.one(kinds)(draw)
    return texts[0]


def _mixed(words: list[str]) -> list[str]:
    """In random order, by Fisher and Yates."""
    draw = Draw(f"{SEED} shuffled")
    for last in range(len(words) - 1, 0, -1):
        other = draw.one(range(last + 1))
        words[last], words[other] = words[other], words[last]
    return words


def _evaluated_texts() -> set[str]:
    """All texts of dev and test splits."""
    splits = [(task, split) for task in TASKS.values() for split in task.splits if split != task.train_split]
    return {text for task, split in splits for _, texts, _ in mini_glue.generate(task, split) for text in texts}
