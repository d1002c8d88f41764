"""mini-GLUE: nine small tasks (and AX) in generated English, with GLUE's columns, labels, splits and metrics.

Every task mixes several kinds of example; each kind is a function that draws the texts and the label. In easy kinds, a
single word gives the label away. Hard kinds require an understanding of negation, contrast, long-distance agreement,
synonyms, the passive, hypernyms, or who did what to whom. Examples therefore need different numbers of layers. In the
tasks of `_EASY_KINDS`, each example is known to be easy or hard, and the share of easy examples is a parameter.
Nothing is taken from GLUE's data. Every process and every version of Python generates the same text. Do not reorder the
random draws, because that would change the data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from trainables.data.tasks import Task

SEED = 0

Example = tuple[tuple[str, ...], int | float]  # texts, label
T = TypeVar("T")


class Draw:
    """Random choices that are the same in every version of Python, because they use only `random()`."""

    def __init__(self, seed: str) -> None:
        """Create a random generator with `seed`."""
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def one(self, options: Sequence[T]) -> T:
        """Draw one of the options."""
        return options[int(self._random() * len(options))]

    def other(self, options: Sequence[T], than: T) -> T:
        """Draw one of the options that differ from `than`."""
        return self.one([option for option in options if option != than])

    def two(self, options: Sequence[T]) -> tuple[T, T]:
        """Draw two different options."""
        first = self.one(options)
        return first, self.other(options, first)

    def either_order(self, first: str, second: str) -> tuple[str, str]:
        """Return two texts in random order."""
        return (first, second) if self.chance(0.5) else (second, first)


Kind = Callable[[Draw], Example]
Mixture = tuple[tuple[int, Kind], ...]  # kinds of example, each with its share in per cent

_PLACES = ("in the garden", "in the kitchen", "at the market", "at the station")
_DAYS = ("on monday", "on friday", "last week", "yesterday")
_REASONS = ("to save money", "to help a friend", "to win a prize", "for fun")

# SST-2.

_OPINIONS = (
    ("dull", "clumsy", "tedious", "awful", "silly", "hollow", "lifeless", "cold"),
    ("charming", "clever", "moving", "superb", "funny", "delightful", "brilliant", "warm"),
)  # by label: 0 negative, 1 positive
_ASPECTS = ("film", "story", "plot", "acting", "ending", "cast", "script", "music")
_DEGREES = ("very", "truly", "quite", "rather", "deeply")


def _opinion(draw: Draw, label: int) -> str:
    word = draw.one(_OPINIONS[label])
    return f"{draw.one(_DEGREES)} {word}" if draw.chance(0.5) else word


def _plain_opinion(draw: Draw) -> Example:
    label = int(draw.chance(0.5))
    first, second = draw.two(_ASPECTS)
    one, two = _opinion(draw, label), _opinion(draw, label)
    patterns = (f"a {one} {first}", f"a {one} {first} with a {two} {second}", f"the {first} is {one} and {two}")
    return (draw.one(patterns),), label


def _negated_opinion(draw: Draw) -> Example:
    label = int(draw.chance(0.5))
    aspect, word = draw.one(_ASPECTS), _opinion(draw, 1 - label)
    patterns = (f"the {aspect} is not {word}", f"the {aspect} is never {word}", f"this is hardly a {word} {aspect}")
    return (draw.one(patterns),), label


def _contrasting_opinion(draw: Draw) -> Example:
    """Contrast two opinions. The clause after `but`, or the clause without `although`, decides the label."""
    label = int(draw.chance(0.5))
    first, second = draw.two(_ASPECTS)
    loses, wins = f"the {first} is {_opinion(draw, 1 - label)}", f"the {second} is {_opinion(draw, label)}"
    return (draw.one((f"{loses} but {wins}", f"although {loses} {wins}", f"{wins} although {loses}")),), label


OPINION_KINDS = (_plain_opinion, _negated_opinion, _contrasting_opinion)

# CoLA: about two thirds of the sentences are acceptable. Word pairs are (singular, plural); in `_FORMS` (wrong, right).

_COUNTED = (("dog", "dogs"), ("child", "children"), ("bird", "birds"), ("girl", "girls"), ("boy", "boys"))
_ACTIONS = (("sleeps", "sleep"), ("sings", "sing"), ("runs", "run"), ("laughs", "laugh"), ("waits", "wait"))
_DETERMINERS = (("this", "these"), ("every", "many"), ("that", "those"))
_MANNERS = ("quietly", "often", "today", "alone")
_JOINERS = ("near", "behind", "beside")
_FORMS = (("runned", "ran"), ("singed", "sang"), ("sleeped", "slept"), ("weeped", "wept"), ("swimmed", "swam"))
_ARTICLES = ("the", "my", "some")


def _acceptable(draw: Draw) -> int:
    return int(draw.chance(0.65))


def _agreeing(draw: Draw, words: Sequence[tuple[str, str]], number: int, label: int) -> str:
    """Draw a word in the given grammatical number (0 singular, 1 plural), or in the wrong number if `label` is 0."""
    return draw.one(words)[number if label else 1 - number]


def _word_form(draw: Draw) -> Example:
    label = _acceptable(draw)
    verb = draw.one(_FORMS)[label]
    return (f"{draw.one(_ARTICLES)} {draw.one(draw.one(_COUNTED))} {verb} {draw.one(_MANNERS)}",), label


def _noun_phrase_agreement(draw: Draw) -> Example:
    number, label = draw.one((0, 1)), _acceptable(draw)
    determiner = _agreeing(draw, _DETERMINERS, number, label)
    return (f"{determiner} {draw.one(_COUNTED)[number]} {draw.one(_ACTIONS)[number]} {draw.one(_MANNERS)}",), label


def _word_order(draw: Draw) -> Example:
    number, label = draw.one((0, 1)), _acceptable(draw)
    noun, verb, manner = draw.one(_COUNTED)[number], draw.one(_ACTIONS)[number], draw.one(_MANNERS)
    other = draw.one(_COUNTED)[draw.one((0, 1))]
    tail = f"{draw.one(_JOINERS)} the {other}"
    broken = (
        f"{noun} the {verb} {manner} {tail}",
        f"the {noun} {verb} {manner} {tail} the",
        f"{manner} the {verb} {tail}",
    )
    return (f"the {noun} {verb} {manner} {tail}" if label else draw.one(broken),), label


def _near_agreement(draw: Draw) -> Example:
    number, label = draw.one((0, 1)), _acceptable(draw)
    verb = _agreeing(draw, _ACTIONS, number, label)
    start = draw.one(_ARTICLES)
    return (f"{start} {draw.one(_COUNTED)[number]} {verb} {draw.one(_MANNERS)} {draw.one(_PLACES)}",), label


def _far_agreement(draw: Draw) -> Example:
    """Draw a sentence with a second noun, singular or plural at random, between subject and verb."""
    number, nearer, label = draw.one((0, 1)), draw.one((0, 1)), _acceptable(draw)
    noun, other = draw.two(_COUNTED)
    verb = _agreeing(draw, _ACTIONS, number, label)
    return (f"the {noun[number]} {draw.one(_JOINERS)} the {other[nearer]} {verb} {draw.one(_MANNERS)}",), label


ACCEPTABILITY_KINDS = (_word_form, _noun_phrase_agreement, _word_order, _near_agreement, _far_agreement)

# The sentence-pair tasks describe events: who did what to which object, where and when.

_VERBS = (  # each row: two synonyms, and two synonyms of the opposite
    (("buy", "purchase"), ("sell", "trade")),
    (("find", "discover"), ("lose", "misplace")),
    (("love", "adore"), ("hate", "detest")),
    (("repair", "fix"), ("damage", "ruin")),
)
_IRREGULAR = {"buy": "bought", "sell": "sold", "find": "found", "lose": "lost"}  # past tense and participle
_OBJECTS = {  # hypernym: hyponyms
    "fruit": ("apple", "pear", "plum"),
    "tool": ("hammer", "saw", "drill"),
    "flower": ("rose", "tulip", "lily"),
    "toy": ("ball", "doll", "kite"),
}
_PEOPLE = ("teacher", "doctor", "farmer", "singer")
_SYNONYM = {verb: other for row in _VERBS for pair in row for verb, other in (pair, pair[::-1])}
_OPPOSITES = {verb: opposites for row in _VERBS for pair, opposites in (row, row[::-1]) for verb in pair}
_HYPERNYM = {noun: hypernym for hypernym, nouns in _OBJECTS.items() for noun in nouns}
_PLACED = ("", *_PLACES)
_PLACED_OR_DATED = ("", *_PLACES, *_DAYS)

Event = dict[str, str]  # subject, verb, object, and an adjunct, which may be empty

_CHANGES: dict[str, Callable[[Event, Draw], Event]] = {  # name of a change -> the changed parts of an event
    "synonymous": lambda event, draw: {"verb": _SYNONYM[event["verb"]]},
    "reworded": lambda event, draw: {"verb": _SYNONYM[event["verb"]]} if draw.chance(0.5) else {},
    "opposite": lambda event, draw: {"verb": draw.one(_OPPOSITES[event["verb"]])},
    "other_person": lambda event, draw: {"subject": draw.other(_PEOPLE, event["subject"])},
    "other_object": lambda event, draw: {"object": draw.other(_OBJECTS[_HYPERNYM[event["object"]]], event["object"])},
    "elsewhere": lambda event, draw: {"adjunct": draw.other(_PLACED, event["adjunct"])},
    "for_a_reason": lambda event, draw: {"adjunct": draw.one(_REASONS)},
    "bare": lambda event, draw: {"adjunct": ""},
    "bare_or_not": lambda event, draw: {"adjunct": draw.one((event["adjunct"], ""))},
}
_SENTENCES = {
    "active": "the {subject} {past} the {object} {adjunct}",
    "passive": "the {object} was {past} by the {subject} {adjunct}",
    "negated": "the {subject} did not {verb} the {object} {adjunct}",
    "refused": "the {subject} refused to {verb} the {object}",
    "general": "the {subject} {past} some {hypernym}",
    "general_placed": "the {subject} {past} some {hypernym} {adjunct}",
    "general_negated": "the {subject} did not {verb} any {hypernym} {adjunct}",
    "question": "did the {subject} {verb} the {object} ?",  # after a wh-word
}


def _event(draw: Draw, adjuncts: Sequence[str] = ("",)) -> Event:
    verbs, subject = draw.one(draw.one(_VERBS)), draw.one(_PEOPLE)
    verb, noun = draw.one(verbs), draw.one(draw.one(tuple(_OBJECTS.values())))
    return {"subject": subject, "verb": verb, "object": noun, "adjunct": draw.one(adjuncts)}


def _write_sentence(event: Event, form: str, draw: Draw) -> str:
    """Change an event, then write a sentence about the changed event.

    For example, `opposite voiced` writes the opposite event in the active or passive voice.

    Args:
        form: any number of `_CHANGES`, then one of `_SENTENCES` or `voiced` (`active` or `passive` at random).
    """
    *changes, sentence = form.split()
    for change in changes:
        event = event | _CHANGES[change](event, draw)
    if sentence == "voiced":
        sentence = "passive" if draw.chance(0.4) else "active"
    past = _IRREGULAR.get(event["verb"]) or f"{event['verb'].removesuffix('e')}ed"
    return _SENTENCES[sentence].format(**event, past=past, hypernym=_HYPERNYM[event["object"]]).rstrip()


def _retold(adjuncts: Sequence[str], label: int | float, second: str, *, first: str = "active") -> Kind:
    """Make a function that draws an event and writes it twice, in the forms `first` and `second`."""

    def kind(draw: Draw) -> Example:
        event = _event(draw, adjuncts)
        return (_write_sentence(event, first, draw), _write_sentence(event, second, draw)), label

    return kind


# MRPC: two thirds of the pairs are paraphrases.

paraphrase = _retold(_PLACED_OR_DATED, 1, "reworded voiced")


def _denial(draw: Draw) -> Example:
    event = _event(draw, _PLACED_OR_DATED)
    denied = _write_sentence(event, "reworded negated", draw)
    return draw.either_order(_write_sentence(event, "active", draw), denied), 0


_MRPC: Mixture = (
    (65, paraphrase),
    (15, _denial),
    (9, _retold(_PLACED_OR_DATED, 0, "reworded refused")),
    (3, _retold(_PLACED_OR_DATED, 1, "synonymous negated", first="negated")),
    (4, _retold(_PLACED_OR_DATED, 0, "opposite voiced")),
    (4, _retold(_PLACED_OR_DATED, 0, "other_person voiced")),
)

# QQP: 37 % of the pairs are duplicates, which ask the same question about the same topic.

_TOPICS = (  # per topic two activities, each in two wordings
    (("bake bread", "make bread"), ("slice bread", "cut bread")),
    (("learn guitar", "study guitar"), ("tune my guitar", "adjust my guitar")),
    (("speed up my laptop", "accelerate my laptop"), ("clean my laptop", "dust my laptop")),
    (("train my puppy", "teach my puppy"), ("wash my puppy", "bathe my puppy")),
    (("plan a garden", "design a garden"), ("water a garden", "sprinkle a garden")),
)
_ASKED = (  # wordings of a question about manner, reason, place and time
    ("how do i {}", "what is the best way to {}", "how can one {}"),
    ("why should i {}", "what is the point if i {}", "is it worth it to {}"),
    ("where can i {}", "which place is good to {}", "what city is best to {}"),
    ("when should i {}", "how long does it take to {}", "what is the right age to {}"),
)
_TRIVIA = ("who wrote this novel", "what is the capital of this country", "how old is the sun", "who won the final")


def _question(draw: Draw, deed: Sequence[str], asked: Sequence[str]) -> str:
    return draw.one(asked).format(draw.one(deed)) + " ?"


def _duplicates(draw: Draw) -> Example:
    deed = draw.one(draw.one(_TOPICS))
    asked = _ASKED[0] if draw.chance(0.25) else draw.one(_ASKED)
    return (_question(draw, deed, asked), _question(draw, deed, asked)), 1


def _other_topic(draw: Draw) -> Example:
    return tuple(_question(draw, draw.one(topic), draw.one(_ASKED)) for topic in draw.two(_TOPICS)), 0


def _trivia(draw: Draw) -> Example:
    deed, asked = draw.one(draw.one(_TOPICS)), draw.one(_ASKED)
    first, second = _question(draw, deed, asked), f"{draw.one(_TRIVIA)} ?"
    return draw.either_order(first, second), 0


def _other_deed(draw: Draw) -> Example:
    (one, two), asked = draw.two(draw.one(_TOPICS)), draw.one(_ASKED)
    return (_question(draw, one, asked), _question(draw, two, asked)), 0


def _other_answer(draw: Draw) -> Example:
    deed, (one, two) = draw.one(draw.one(_TOPICS)), draw.two(_ASKED)
    return (_question(draw, deed, one), _question(draw, deed, two)), 0


# STS-B: the score is 5 for the same event, lower for each part that differs, and 0 for an unrelated topic.

_WEATHER = ("it rained a lot", "it snowed for hours", "the wind was strong", "the sky was clear", "the fog was thick")
_DIFFERENCES = (  # change, its probability, how much it reduces the score
    ("synonymous", 0.4, 0.0),
    ("other_person", 0.4, 1.2),
    ("other_object", 0.4, 0.8),
    ("elsewhere", 0.3, 0.6),
    ("opposite", 0.3, 1.6),
)


def _graded_events(draw: Draw) -> Example:
    first, similarity = _event(draw, _PLACED), 5.0
    second = first
    for change, probability, loss in _DIFFERENCES:
        if draw.chance(probability):
            second, similarity = second | _CHANGES[change](second, draw), similarity - loss
    return (_write_sentence(first, "active", draw), _write_sentence(second, "voiced", draw)), round(similarity, 1)


def _weather(draw: Draw) -> str:
    return f"{draw.one(_WEATHER)} {draw.one((*_PLACES, *_DAYS))}"


def _unrelated(draw: Draw) -> Example:
    first, second = _write_sentence(_event(draw, _PLACED), "active", draw), _weather(draw)
    return draw.either_order(first, second), 0.0


# MNLI.

_ENTAILMENT, _NEUTRAL, _CONTRADICTION = 0, 1, 2


def _denied_premise(draw: Draw) -> Example:
    """Draw a pair with a negated premise. "no fruit" entails "no apple", but not vice versa."""
    event, label = _event(draw, _PLACED), draw.one((_ENTAILMENT, _NEUTRAL, _CONTRADICTION))
    premise = "general_negated" if label == _ENTAILMENT else "negated"
    hypothesis = ("negated", "general_negated", "active")[label]
    return (_write_sentence(event, premise, draw), _write_sentence(event, hypothesis, draw)), label


_MNLI: Mixture = (
    # Entailment: the hypothesis says the same as the premise, or less.
    (20, _retold((*_PLACES, *_DAYS), _ENTAILMENT, "bare_or_not reworded voiced")),
    (12, _retold(_PLACED, _ENTAILMENT, "general")),
    # Neutral: the hypothesis says more, or is about somebody or something else.
    (6, _retold(_PLACED, _NEUTRAL, "bare active", first="general_placed")),
    (18, _retold(_PLACED_OR_DATED, _NEUTRAL, "for_a_reason voiced")),
    (6, _retold(_PLACED, _NEUTRAL, "other_person bare active")),
    # Contradiction: the hypothesis says the opposite.
    (18, _retold(_PLACED_OR_DATED, _CONTRADICTION, "bare_or_not reworded negated")),
    (8, _retold(_PLACED_OR_DATED, _CONTRADICTION, "opposite bare_or_not voiced")),
    (12, _denied_premise),
)


# RTE.


def _two_clauses(draw: Draw) -> tuple[str, Event, Event]:
    """Draw a premise of two clauses about different objects. Return the premise, and the two events in random order."""
    one, two = _event(draw), _event(draw)
    while one["object"] == two["object"]:
        two = _event(draw)
    first, conjunction = _write_sentence(one, "active", draw), draw.one(("and", "while", "before"))
    premise = f"{first} {conjunction} {_write_sentence(two, 'active', draw)}"
    return (premise, one, two) if draw.chance(0.5) else (premise, two, one)


def entailed_clause(draw: Draw) -> Example:
    """Draw a premise of two clauses, and a hypothesis that rewords one of them (entailment)."""
    premise, event, _ = _two_clauses(draw)
    return (premise, _write_sentence(event, "reworded voiced", draw)), 0


def _mixed_up(draw: Draw) -> Example:
    """Draw a premise of two clauses, and a hypothesis that gives one event the wrong subject (no entailment)."""
    premise, event, other = _two_clauses(draw)
    if event["subject"] == other["subject"]:
        return (premise, _write_sentence(event, "other_person active", draw)), 1
    return (premise, _write_sentence(event | {"subject": other["subject"]}, "active", draw)), 1


def _untrue(draw: Draw) -> Example:
    premise, event, _ = _two_clauses(draw)
    added, opposite = (event | _CHANGES[change](event, draw) for change in ("for_a_reason", "opposite"))
    forms = ((event, "negated"), (added, "voiced"), (opposite, "active"))
    return (premise, draw.one([_write_sentence(*form, draw) for form in forms])), 1


# QNLI: does the sentence answer the question?

_ANSWERS = {"where": _PLACES, "when": _DAYS, "why": _REASONS}


def _answered(label: int, form: str) -> Kind:
    """Make a function that draws a question about an event and writes an answer in the form `form`."""

    def kind(draw: Draw) -> Example:
        wh_word = draw.one(tuple(_ANSWERS))
        event = _event(draw, _ANSWERS[wh_word])
        return (f"{wh_word} {_write_sentence(event, 'question', draw)}", _write_sentence(event, form, draw)), label

    return kind


def _off_topic(draw: Draw) -> Example:
    wh_word = draw.one(tuple(_ANSWERS))
    return (f"{wh_word} {_write_sentence(_event(draw), 'question', draw)}", _weather(draw)), 1


def _nothing_said(draw: Draw) -> Example:
    event = _event(draw, ("with great care", "without any help", "by pure chance"))
    question = f"{draw.one(tuple(_ANSWERS))} {_write_sentence(event, 'question', draw)}"
    return (question, _write_sentence(event, "reworded voiced", draw)), 1


def _answers_another(draw: Draw) -> Example:
    asked, answered = draw.two(tuple(_ANSWERS))
    event = _event(draw, _ANSWERS[answered])
    return (f"{asked} {_write_sentence(event, 'question', draw)}", _write_sentence(event, "reworded voiced", draw)), 1


# WNLI: the referent of a pronoun.

_THINGS = ("trophy", "ball", "book", "doll", "lamp", "vase", "clock", "shoe")
_CONTAINERS = ("suitcase", "box", "bag", "drawer", "basket", "chest", "jar", "case")
_LARGE, _SMALL = ("big", "large", "wide"), ("small", "tiny", "narrow")
_ADULTS, _CHILDREN = ("teacher", "doctor", "nurse", "coach"), ("girl", "daughter", "pupil", "niece")
_FAVOURS = (  # what one woman did to another, the reason, and whether `she` in the reason means the other woman
    ("thanked", "had been helpful", True),
    ("praised", "had won a prize", True),
    ("hugged", "had been brave", True),
    ("called", "needed advice", False),
)


def _not_fitting(draw: Draw, thing: str, container: str, size: str) -> str:
    clause = draw.one((f"the {thing} does not fit into the {container}", f"the {container} cannot hold the {thing}"))
    return f"{clause} because it is too {size}"


def _fit(draw: Draw) -> Example:
    """Draw a sentence "A does not fit into B because it is too big", and a right or wrong reading of `it`."""
    thing, container, large, label = draw.one(_THINGS), draw.one(_CONTAINERS), draw.chance(0.8), int(draw.chance(0.7))
    size = draw.one(_LARGE if large else _SMALL)
    referent = thing if large == bool(label) else container
    return (_not_fitting(draw, thing, container, size), f"the {referent} is too {size}"), label


def _fit_enough(draw: Draw) -> Example:
    thing, container, size = draw.one(_THINGS), draw.one(_CONTAINERS), draw.one((*_LARGE, *_SMALL))
    premise = _not_fitting(draw, thing, container, size)
    return (premise, f"the {draw.one((thing, container))} is {size} enough"), 0


def _favour(draw: Draw) -> Example:
    """Draw a sentence "A thanked B because she had been helpful", and a right or wrong reading of `she`."""
    one, label, day = draw.one(_ADULTS), int(draw.chance(0.7)), draw.one(_DAYS)
    two = draw.one(_CHILDREN) if draw.chance(0.6) else draw.other(_ADULTS, one)
    verb, reason, is_other = draw.one(_FAVOURS)
    referent = two if is_other == bool(label) else one
    return (f"{day} the {one} {verb} the {two} because she {reason}", f"the {referent} {reason}"), label


# The tasks.

_OTHER_GENRE = {  # word in the matched splits of MNLI -> word in the mismatched splits
    "teacher": "pilot",
    "doctor": "judge",
    "apple": "coat",
    "pear": "shirt",
    "plum": "hat",
    "fruit": "clothing",
    "garden": "harbour",
    "friend": "stranger",
}
_MIXTURES: dict[str, Mixture] = {
    "sst2": tuple(zip((60, 15, 25), OPINION_KINDS, strict=True)),
    "rte": ((50, entailed_clause), (18, _mixed_up), (32, _untrue)),
    "qnli": (
        (50, _answered(0, "reworded voiced")),
        (20, _off_topic),
        (10, _nothing_said),
        (12, _answers_another),
        (8, _answered(1, "other_person reworded voiced")),
    ),
    "cola": tuple(zip((25, 20, 25, 15, 15), ACCEPTABILITY_KINDS, strict=True)),
    "mrpc": _MRPC,
    "mnli": _MNLI,
    "qqp": ((37, _duplicates), (35, _trivia), (15, _other_topic), (4, _other_deed), (9, _other_answer)),
    "stsb": (
        (65, _graded_events),
        (15, _retold(_PLACED, 1.4, "reworded negated")),
        (20, _unrelated),
    ),
    "wnli": ((55, _fit), (25, _fit_enough), (20, _favour)),
    "ax": _MNLI,
}
_EASY_KINDS: dict[str, tuple[Kind, ...]] = {  # of the tasks whose easy and hard kinds all have every label
    "sst2": (_plain_opinion,),
    "cola": (_word_form,),
}
TRAIN_ROWS = 1000  # of each task except MNLI, which has more, and AX, which has none
MOST_DRAWS = 10_000  # of one example, until its texts are new
_SIZES = {name: {"train": TRAIN_ROWS, "dev": 250, "test": 200} for name in _MIXTURES} | {
    "mnli": {"train": 1200, "dev_matched": 200, "dev_mismatched": 200, "test_matched": 150, "test_mismatched": 150},
    "ax": {"test": 150},
}


def generate(
    task: Task, split: str, *, easy_share: float | None = None
) -> list[tuple[int, tuple[str, ...], int | float | None]]:
    """Generate the rows (id, texts, label) of a split; no two have the same texts. In a test split, labels are None.

    Args:
        easy_share: share of easy examples, for a task whose difficulty is known; None: as in the task's mixture.
    """
    assert easy_share is None or task.name in _EASY_KINDS, f"the difficulty of {task.title} is not known"
    examples = _generate_all(task.name, easy_share)[split]
    labelled = split not in task.test_splits
    return [(row, texts, label if labelled else None) for row, (_, (texts, label)) in enumerate(examples)]


def list_hard(task: Task, split: str, *, easy_share: float | None = None) -> list[bool] | None:
    """List for each row of `generate` whether it is hard; None if the task's difficulty is not known."""
    if task.name not in _EASY_KINDS:
        return None
    return [kind not in _EASY_KINDS[task.name] for kind, _ in _generate_all(task.name, easy_share)[split]]


@cache
def _generate_all(name: str, easy_share: float | None) -> dict[str, list[tuple[Kind, Example]]]:
    draw = Draw(f"{SEED} {name}")
    by_share = [kind for share, kind in _MIXTURES[name] for _ in range(share)]
    seen: set[tuple[str, ...]] = set()
    splits = {}
    for split, size in _SIZES[name].items():
        genre = _OTHER_GENRE if "mismatched" in split else {}
        splits[split] = rows = list[tuple[Kind, Example]]()
        for _ in range(size):
            kinds = by_share
            if easy_share is not None:
                is_easy = draw.chance(easy_share)
                kinds = [kind for kind in by_share if (kind in _EASY_KINDS[name]) == is_easy]
            kind = draw.one(kinds)
            rows.append((kind, _draw_unseen(draw, kind, genre, seen)))
    return splits


def _draw_unseen(draw: Draw, kind: Kind, genre: Mapping[str, str], seen: set[tuple[str, ...]]) -> Example:
    """Draw an example that is not yet in `seen`, and add its texts to `seen`. No text occurs twice in an example.

    `genre` maps words to their replacements.
    """
    for _ in range(MOST_DRAWS):
        texts, label = kind(draw)
        texts = tuple(" ".join(genre.get(word, word) for word in text.split()) for text in texts)
        if texts not in seen and len(set(texts)) == len(texts):
            seen.add(texts)
            return texts, label
    raise AssertionError(f"a kind of example has too few texts: {kind}")
