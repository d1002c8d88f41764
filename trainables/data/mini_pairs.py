"""Examples of mini-GLUE's tasks on pairs of sentences: one function per kind, which draws texts and their label.

Kinds are easy (other words) or hard (negation, paraphrase by synonym and voice, entailment by hypernym, who did what to
whom). `mini_glue.py` mixes them into tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainables.data.mini_draw import Draw, Example
from trainables.data.mini_sentences import PLACES

# Events: who did what to what, where and when. What the sentence pair tasks are made of.


@dataclass(frozen=True)
class _Verb:
    base: str
    past: str  # also the participle


_VERBS = (  # two that mean the same, and two that mean their opposite
    ((_Verb("buy", "bought"), _Verb("purchase", "purchased")), (_Verb("sell", "sold"), _Verb("trade", "traded"))),
    (
        (_Verb("find", "found"), _Verb("discover", "discovered")),
        (_Verb("lose", "lost"), _Verb("misplace", "misplaced")),
    ),
    ((_Verb("love", "loved"), _Verb("adore", "adored")), (_Verb("hate", "hated"), _Verb("detest", "detested"))),
    ((_Verb("repair", "repaired"), _Verb("fix", "fixed")), (_Verb("damage", "damaged"), _Verb("ruin", "ruined"))),
)
_OBJECTS = {  # hypernym: hyponyms
    "fruit": ("apple", "pear", "plum"),
    "tool": ("hammer", "saw", "drill"),
    "flower": ("rose", "tulip", "lily"),
    "toy": ("ball", "doll", "kite"),
}
_PEOPLE = ("teacher", "doctor", "farmer", "singer")
_DAYS = ("on monday", "on friday", "last week", "yesterday")
_REASONS = ("to save money", "to help a friend", "to win a prize", "for fun")


@dataclass(frozen=True)
class _Event:
    subject: str
    verb: _Verb
    object: str
    adjunct: str = ""

    def active(self) -> str:
        return f"the {self.subject} {self.verb.past} the {self.object} {self.adjunct}".rstrip()

    def passive(self) -> str:
        return f"the {self.object} was {self.verb.past} by the {self.subject} {self.adjunct}".rstrip()

    def negated(self) -> str:
        return f"the {self.subject} did not {self.verb.base} the {self.object} {self.adjunct}".rstrip()


def _event(draw: Draw, adjuncts: Sequence[str] = ("",)) -> _Event:
    verbs = draw.one(draw.one(_VERBS))
    return _Event(draw.one(_PEOPLE), draw.one(verbs), draw.one(draw.one(tuple(_OBJECTS.values()))), draw.one(adjuncts))


def _synonym(verb: _Verb) -> _Verb:
    return next(other for row in _VERBS for pair in row for other in pair if verb in pair and other != verb)


def _opposite(draw: Draw, verb: _Verb) -> _Verb:
    return next(
        draw.one(pair) for row in _VERBS for pair in row if any(verb in one for one in row) and verb not in pair
    )


def _hypernym(noun: str) -> str:
    return next(name for name, nouns in _OBJECTS.items() if noun in nouns)


def _reworded(draw: Draw, event: _Event) -> _Event:
    return replace(event, verb=_synonym(event.verb)) if draw.chance(0.5) else event


def _voiced(draw: Draw, event: _Event) -> str:
    return event.passive() if draw.chance(0.4) else event.active()


def _paraphrased(draw: Draw, event: _Event) -> str:
    return _voiced(draw, _reworded(draw, event))


# MRPC: two thirds are paraphrases.


def paraphrase(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    return (event.active(), _paraphrased(draw, event)), 1


def denial(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    first, second = event.active(), _reworded(draw, event).negated()
    return ((first, second) if draw.chance(0.5) else (second, first)), 0


def refusal(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    verb = _reworded(draw, event).verb
    return (event.active(), f"the {event.subject} refused to {verb.base} the {event.object}"), 0


def double_denial(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    return (event.negated(), replace(event, verb=_synonym(event.verb)).negated()), 1


def opposite_event(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    return (event.active(), _voiced(draw, replace(event, verb=_opposite(draw, event.verb)))), 0


def other_person(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    return (event.active(), _voiced(draw, replace(event, subject=draw.other(_PEOPLE, event.subject)))), 0


# QQP: a good third are duplicates: about the same thing, and the same is wanted.

_TOPICS = (  # per topic, two things that one may do there, each in two wordings
    (("bake bread", "make bread"), ("slice bread", "cut bread")),
    (("learn guitar", "study guitar"), ("tune my guitar", "adjust my guitar")),
    (("speed up my laptop", "accelerate my laptop"), ("clean my laptop", "dust my laptop")),
    (("train my puppy", "teach my puppy"), ("wash my puppy", "bathe my puppy")),
    (("plan a garden", "design a garden"), ("water a garden", "sprinkle a garden")),
)
_ASKED = {  # what is wanted: how one may ask
    "manner": ("how do i {}", "what is the best way to {}", "how can one {}"),
    "reason": ("why should i {}", "what is the point if i {}", "is it worth it to {}"),
    "place": ("where can i {}", "which place is good to {}", "what city is best to {}"),
    "time": ("when should i {}", "how long does it take to {}", "what is the right age to {}"),
}


def _question(draw: Draw, deed: tuple[str, ...], asked: str) -> str:
    return draw.one(_ASKED[asked]).format(draw.one(deed)) + " ?"


def duplicates(draw: Draw) -> Example:
    deed = draw.one(draw.one(_TOPICS))
    asked = "manner" if draw.chance(0.25) else draw.one(tuple(_ASKED))
    return (_question(draw, deed, asked), _question(draw, deed, asked)), 1


def other_topic(draw: Draw) -> Example:
    one, two = draw.two(_TOPICS)
    first, second = (_question(draw, draw.one(topic), draw.one(tuple(_ASKED))) for topic in (one, two))
    return (first, second), 0


_TRIVIA = ("who wrote this novel", "what is the capital of this country", "how old is the sun", "who won the final")


def trivia(draw: Draw) -> Example:
    deed, asked = draw.one(draw.one(_TOPICS)), draw.one(tuple(_ASKED))
    pair = (_question(draw, deed, asked), f"{draw.one(_TRIVIA)} ?")
    return pair if draw.chance(0.5) else pair[::-1], 0


def other_deed(draw: Draw) -> Example:
    (one, two), asked = draw.two(draw.one(_TOPICS)), draw.one(tuple(_ASKED))
    return (_question(draw, one, asked), _question(draw, two, asked)), 0


def other_answer(draw: Draw) -> Example:
    deed, (one, two) = draw.one(draw.one(_TOPICS)), draw.two(tuple(_ASKED))
    return (_question(draw, deed, one), _question(draw, deed, two)), 0


# STS-B: 5 for the same event, less for every part that differs, 0 for another subject altogether.

_WEATHER = ("it rained a lot", "it snowed for hours", "the wind was strong", "the sky was clear", "the fog was thick")


def graded_events(draw: Draw) -> Example:
    event, similarity = _event(draw, ("", *PLACES)), 5.0
    other = replace(event, verb=_synonym(event.verb)) if draw.chance(0.4) else event
    if draw.chance(0.4):
        other, similarity = replace(other, subject=draw.other(_PEOPLE, event.subject)), similarity - 1.2
    if draw.chance(0.4):
        nouns = _OBJECTS[_hypernym(event.object)]
        other, similarity = replace(other, object=draw.other(nouns, event.object)), similarity - 0.8
    if draw.chance(0.3):
        other, similarity = replace(other, adjunct=draw.other(("", *PLACES), event.adjunct)), similarity - 0.6
    if draw.chance(0.3):
        other, similarity = replace(other, verb=_opposite(draw, event.verb)), similarity - 1.6
    return (event.active(), _voiced(draw, other)), round(similarity, 1)


def denied_event(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES))
    return (event.active(), _reworded(draw, event).negated()), 1.4


def unrelated(draw: Draw) -> Example:
    first, second = _event(draw, ("", *PLACES)).active(), f"{draw.one(_WEATHER)} {draw.one((*PLACES, *_DAYS))}"
    return ((first, second) if draw.chance(0.5) else (second, first)), 0.0


# MNLI and RTE.

_ENTAILMENT, _NEUTRAL, _CONTRADICTION = 0, 1, 2


def same_or_less_said(draw: Draw) -> Example:
    event = _event(draw, (*PLACES, *_DAYS))
    said = replace(event, adjunct=draw.one((event.adjunct, "")))
    return (event.active(), _paraphrased(draw, said)), _ENTAILMENT


def more_general(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES))
    return (event.active(), f"the {event.subject} {event.verb.past} some {_hypernym(event.object)}"), _ENTAILMENT


def more_special(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES))
    premise = f"the {event.subject} {event.verb.past} some {_hypernym(event.object)} {event.adjunct}".rstrip()
    return (premise, replace(event, adjunct="").active()), _NEUTRAL


def more_said(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    return (event.active(), _voiced(draw, replace(event, adjunct=draw.one(_REASONS)))), _NEUTRAL


def someone_else(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES))
    return (event.active(), replace(event, subject=draw.other(_PEOPLE, event.subject), adjunct="").active()), _NEUTRAL


def denied(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    said = replace(event, adjunct=draw.one((event.adjunct, "")))
    return (event.active(), _reworded(draw, said).negated()), _CONTRADICTION


def reversed(draw: Draw) -> Example:
    event = _event(draw, ("", *PLACES, *_DAYS))
    verb, adjunct = _opposite(draw, event.verb), draw.one((event.adjunct, ""))
    return (event.active(), _voiced(draw, replace(event, verb=verb, adjunct=adjunct))), _CONTRADICTION


def denied_premise(draw: Draw) -> Example:
    """Negation turns inference round: no fruit means no apple, no apple does not mean no fruit."""
    event = _event(draw, ("", *PLACES))
    special = event.negated()
    general = f"the {event.subject} did not {event.verb.base} any {_hypernym(event.object)} {event.adjunct}".rstrip()
    label = draw.one((_ENTAILMENT, _NEUTRAL, _CONTRADICTION))
    return ((general, special), (special, general), (special, event.active()))[label], label


def _two_clauses(draw: Draw) -> tuple[str, _Event, _Event]:
    """A premise, an event that it tells of, and the other one, of another object."""
    one, two = _event(draw), _event(draw)
    while one.object == two.object:
        two = _event(draw)
    premise = f"{one.active()} {draw.one(('and', 'while', 'before'))} {two.active()}"
    return (premise, one, two) if draw.chance(0.5) else (premise, two, one)


def told(draw: Draw) -> Example:
    premise, told, _ = _two_clauses(draw)
    return (premise, _paraphrased(draw, told)), 0


def mixed_up(draw: Draw) -> Example:
    """What the one did is said of somebody else: of who did the other thing, where these are two."""
    premise, told, other = _two_clauses(draw)
    subject = draw.other(_PEOPLE, told.subject) if told.subject == other.subject else other.subject
    return (premise, replace(told, subject=subject).active()), 1


def untrue(draw: Draw) -> Example:
    premise, told, _ = _two_clauses(draw)
    added, opposite = replace(told, adjunct=draw.one(_REASONS)), replace(told, verb=_opposite(draw, told.verb))
    return (premise, draw.one((told.negated(), _voiced(draw, added), opposite.active()))), 1


# QNLI: does the sentence answer the question?

_ANSWERS = {"where": PLACES, "when": _DAYS, "why": _REASONS}


def _asked(event: _Event, wh_word: str) -> str:
    return f"{wh_word} did the {event.subject} {event.verb.base} the {event.object} ?"


def answered(draw: Draw) -> Example:
    wh_word = draw.one(tuple(_ANSWERS))
    event = _event(draw, _ANSWERS[wh_word])
    return (_asked(event, wh_word), _paraphrased(draw, event)), 0


def off_topic(draw: Draw) -> Example:
    wh_word = draw.one(tuple(_ANSWERS))
    return (_asked(_event(draw), wh_word), f"{draw.one(_WEATHER)} {draw.one((*PLACES, *_DAYS))}"), 1


def nothing_said(draw: Draw) -> Example:
    event = _event(draw, ("with great care", "without any help", "by pure chance"))
    return (_asked(event, draw.one(tuple(_ANSWERS))), _paraphrased(draw, event)), 1


def answers_another(draw: Draw) -> Example:
    asked, answered = draw.two(tuple(_ANSWERS))
    event = _event(draw, _ANSWERS[answered])
    return (_asked(event, asked), _paraphrased(draw, event)), 1


def about_another(draw: Draw) -> Example:
    wh_word = draw.one(tuple(_ANSWERS))
    event = _event(draw, _ANSWERS[wh_word])
    other = replace(event, subject=draw.other(_PEOPLE, event.subject))
    return (_asked(event, wh_word), _paraphrased(draw, other)), 1


# WNLI: what a pronoun stands for.

_THINGS = ("trophy", "ball", "book", "doll", "lamp", "vase", "clock", "shoe")
_CONTAINERS = ("suitcase", "box", "bag", "drawer", "basket", "chest", "jar", "case")
_LARGE, _SMALL = ("big", "large", "wide"), ("small", "tiny", "narrow")


def fit(draw: Draw) -> Example:
    """What does not fit is too big, or what it should go into is too small."""
    thing, container, large, label = draw.one(_THINGS), draw.one(_CONTAINERS), draw.chance(0.8), int(draw.chance(0.7))
    size = draw.one(_LARGE if large else _SMALL)
    clause = draw.one((f"the {thing} does not fit into the {container}", f"the {container} cannot hold the {thing}"))
    meant = thing if large == bool(label) else container
    return (f"{clause} because it is too {size}", f"the {meant} is too {size}"), label


def fit_enough(draw: Draw) -> Example:
    thing, container, size = draw.one(_THINGS), draw.one(_CONTAINERS), draw.one((*_LARGE, *_SMALL))
    clause = draw.one((f"the {thing} does not fit into the {container}", f"the {container} cannot hold the {thing}"))
    return (f"{clause} because it is too {size}", f"the {draw.one((thing, container))} is {size} enough"), 0


_ADULTS, _CHILDREN = ("teacher", "doctor", "nurse", "coach"), ("girl", "daughter", "pupil", "niece")
_FAVOURS = (  # what she did to another, why, and whether `she` in the reason is the other
    ("thanked", "had been helpful", True),
    ("praised", "had won a prize", True),
    ("hugged", "had been brave", True),
    ("called", "needed advice", False),
)


def favour(draw: Draw) -> Example:
    """Between two of a kind, only their order tells who is meant."""
    one, label, day = draw.one(_ADULTS), int(draw.chance(0.7)), draw.one(_DAYS)
    two = draw.one(_CHILDREN) if draw.chance(0.6) else draw.other(_ADULTS, one)
    verb, reason, is_other = draw.one(_FAVOURS)
    meant = two if is_other == bool(label) else one
    return (f"{day} the {one} {verb} the {two} because she {reason}", f"the {meant} {reason}"), label
