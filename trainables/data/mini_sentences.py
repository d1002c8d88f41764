"""Examples of mini-GLUE's tasks on single sentences: one function per kind, which draws texts and their label.

Kinds are easy (a word gives the label away) or hard (negation, contrast, agreement across distance). `mini_glue.py`
mixes them into tasks.
"""

from trainables.data.mini_draw import Draw, Example

PLACES = ("in the garden", "in the kitchen", "at the market", "at the station")

# SST-2.

_GOOD = ("charming", "clever", "moving", "superb", "funny", "delightful", "brilliant", "warm")
_BAD = ("dull", "clumsy", "tedious", "awful", "silly", "hollow", "lifeless", "cold")
_ASPECTS = ("film", "story", "plot", "acting", "ending", "cast", "script", "music")
_DEGREES = ("very", "truly", "quite", "rather", "deeply")


def _opinion_word(draw: Draw, label: int) -> str:
    word = draw.one(_GOOD if label else _BAD)
    return f"{draw.one(_DEGREES)} {word}" if draw.chance(0.5) else word


def plain_opinion(draw: Draw) -> Example:
    label = int(draw.chance(0.5))
    first, second = draw.two(_ASPECTS)
    one, two = _opinion_word(draw, label), _opinion_word(draw, label)
    patterns = (f"a {one} {first}", f"a {one} {first} with a {two} {second}", f"the {first} is {one} and {two}")
    return (draw.one(patterns),), label


def negated_opinion(draw: Draw) -> Example:
    label = int(draw.chance(0.5))
    aspect, word = draw.one(_ASPECTS), _opinion_word(draw, 1 - label)
    patterns = (f"the {aspect} is not {word}", f"the {aspect} is never {word}", f"this is hardly a {word} {aspect}")
    return (draw.one(patterns),), label


def contrasting_opinion(draw: Draw) -> Example:
    """The clause after `but`, or the one without `although`, decides."""
    label = int(draw.chance(0.5))
    first, second = draw.two(_ASPECTS)
    loses, wins = f"the {first} is {_opinion_word(draw, 1 - label)}", f"the {second} is {_opinion_word(draw, label)}"
    return (draw.one((f"{loses} but {wins}", f"although {loses} {wins}", f"{wins} although {loses}")),), label


# CoLA.

_COUNTED = (("dog", "dogs"), ("child", "children"), ("bird", "birds"), ("girl", "girls"), ("boy", "boys"))
_ACTIONS = (("sleeps", "sleep"), ("sings", "sing"), ("runs", "run"), ("laughs", "laugh"), ("waits", "wait"))
_DETERMINERS = (("this", "these"), ("every", "many"), ("that", "those"))
_MANNERS = ("quietly", "often", "today", "alone")
_JOINERS = ("near", "behind", "beside")


_FORMS = (("ran", "runned"), ("sang", "singed"), ("slept", "sleeped"), ("wept", "weeped"), ("swam", "swimmed"))


def word_form(draw: Draw) -> Example:
    label = int(draw.chance(0.65))
    verb = draw.one(_FORMS)[0 if label else 1]
    return (f"{draw.one(('the', 'my', 'some'))} {draw.one(draw.one(_COUNTED))} {verb} {draw.one(_MANNERS)}",), label


def noun_phrase_agreement(draw: Draw) -> Example:
    number, label = draw.one((0, 1)), int(draw.chance(0.65))
    determiner = draw.one(_DETERMINERS)[number if label else 1 - number]
    return (f"{determiner} {draw.one(_COUNTED)[number]} {draw.one(_ACTIONS)[number]} {draw.one(_MANNERS)}",), label


def word_order(draw: Draw) -> Example:
    number, label = draw.one((0, 1)), int(draw.chance(0.65))
    noun, verb, manner = draw.one(_COUNTED)[number], draw.one(_ACTIONS)[number], draw.one(_MANNERS)
    other = draw.one(_COUNTED)[draw.one((0, 1))]
    tail = f"{draw.one(_JOINERS)} the {other}"
    broken = (
        f"{noun} the {verb} {manner} {tail}",
        f"the {noun} {verb} {manner} {tail} the",
        f"{manner} the {verb} {tail}",
    )
    return (f"the {noun} {verb} {manner} {tail}" if label else draw.one(broken),), label


def near_agreement(draw: Draw) -> Example:
    number, label = draw.one((0, 1)), int(draw.chance(0.65))
    verb = draw.one(_ACTIONS)[number if label else 1 - number]
    start = draw.one(("the", "my", "some"))
    return (f"{start} {draw.one(_COUNTED)[number]} {verb} {draw.one(_MANNERS)} {draw.one(PLACES)}",), label


def far_agreement(draw: Draw) -> Example:
    """The verb agrees with the first noun; the nearer one has the other number half of the time."""
    number, nearer, label = draw.one((0, 1)), draw.one((0, 1)), int(draw.chance(0.65))
    noun, other = draw.two(_COUNTED)
    verb = draw.one(_ACTIONS)[number if label else 1 - number]
    return (f"the {noun[number]} {draw.one(_JOINERS)} the {other[nearer]} {verb} {draw.one(_MANNERS)}",), label
