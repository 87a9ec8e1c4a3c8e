"""The grammar of conversation: frames that the topics fill, and small talk."""

from __future__ import annotations

from functools import cache

from hadpsgd.corpus.builtin.grammar import Grammar
from hadpsgd.corpus.builtin.lists import LISTS
from hadpsgd.corpus.builtin.topics import TOPICS, Topic

FORMS = ("base", "s", "past", "ing", "pp")

_FRAMES = """
turn: 6* <s> . | 3* <reply> , <s> . | 3* <s> , <link> <s> . | 2* <s> . <s> . | 2* <question> ? |
    1* <reply> . <question> ? | 1* <reply> , <reply> .
s: 5* <$T.say> | 3* <past> | 3* <present> | 2* <opinion> | 2* <future> | 1* <perfect> | 1* <wish>
link: 4* and | 3* but | 3* so | 2* because | 1* and then | 1* when | 1* except | 1* unless
reply: 8* yeah | 4* right | 3* uh-huh | 3* oh | 2* okay | 2* oh really | 2* well | 2* no | 1*
    that's true | 1* exactly | 1* i know | 1* sure | 1* i see | 1* wow | 1* oh my goodness | 1*
    absolutely | 1* me too | 1* not really | 1* i guess so | 1* that's right | 1* i agree | 1* oh
    yeah | 1* huh | 1* probably
past: 4* <who> <$T.vp.past> | 2* <who> <$T.vp.past> <time.past> | 1* <who> never <$T.vp.past> | 2*
    <who> didn't <$T.vp.base> | 1* <who> used to <$T.vp.base> | 1* <who> tried to <$T.vp.base> |
    1* we were <$T.vp.ing> <time.past> | 1* <kin> was <$T.vp.ing> | 1* <time.past> <who>
    <$T.vp.past>
present: 3* <they> <freq>? <$T.vp.base> | 3* <she> <freq>? <$T.vp.s> | 1* <they> don't
    <$T.vp.base> | 1* <she> doesn't <$T.vp.base> | 1* i'm <$T.vp.ing> <now> | 1* <kin> is
    <$T.vp.ing> <now> | 1* <they> like to <$T.vp.base> | 1* <she> likes to <$T.vp.base> | 1*
    they're <$T.vp.ing>
future: 2* i'm going to <$T.vp.base> <time.next>? | 1* we'll <$T.vp.base> <time.next>? | 1* <who>
    might <$T.vp.base> | 1* <they> have to <$T.vp.base> <time.next>? | 1* <she> has to
    <$T.vp.base> | 1* <who> should <$T.vp.base> | 1* <who> could <$T.vp.base>
perfect: 2* i've <$T.vp.pp> <times> | 1* i've never <$T.vp.pp> | 1* we've <$T.vp.pp> <since> | 1*
    <kin> has <$T.vp.pp> <times> | 1* i've been <$T.vp.ing> <since>
wish: 2* i'd like to <$T.vp.base> | 1* i wish i could <$T.vp.base> | 1* if i had <price> i would
    <$T.vp.base> | 1* i would love to <$T.vp.base> <time.next>? | 1* it's hard to <$T.vp.base> |
    1* you have to <$T.vp.base> if you want to <$T.vp.base>
opinion: 3* <np> <was> <deg>? <$T.quality> | 2* <nps> <were> <deg>? <$T.quality> | 2* i think <np>
    <was> <deg>? <adj> | 1* i like <nps> | 1* i don't like <nps> | 1* it's <deg> <adj> | 1* that
    sounds <deg>? <adj> | 1* <kin> thinks <np> is <adj> | 1* <nps> are getting more <adj> every
    year | 1* there's no <$T.thing> like that in <city> | 1* i heard <np> was <$T.quality>
question: 2* do you <$T.vp.base> | 2* did you ever <$T.vp.base> | 1* have you <$T.vp.pp> | 1* how
    many <$T.things> do you have | 1* what do you think about <nps> | 1* does <kin.your>
    <$T.vp.base> | 1* is <np> <adj> | 1* are <nps> <$T.quality> | 1* where did you <$T.vp.base> |
    1* why would anybody <$T.vp.base> | 1* when did <kin.your> <$T.vp.base> | 1* how much did <np>
    cost | 1* who <$T.vp.past>
np: 4* the <$T.thing> | 2* my <$T.thing> | 1* that <$T.thing> | 1* the <$T.quality> <$T.thing> |
    1* our <$T.thing> | 1* their <$T.thing> | 1* a_ <adj> <$T.thing>
nps: 3* the <$T.things> | 2* <$T.things> | 1* those <$T.things> | 1* most <$T.things> | 1*
    <$T.quality> <$T.things> | 1* the <adj> <$T.things> | 1* some of the <$T.things> | 1*
    <num.small> <$T.things> | 1* all these <$T.things> | 1* a lot of <$T.things>
was: 3* is | 3* was | 1* isn't | 1* wasn't | 1* seems | 1* has to be | 1* looks | 1* got
were: 3* are | 2* were | 1* aren't | 1* weren't | 1* seem | 1* look
deg: 4* really | 3* pretty | 2* so | 2* very | 2* kind of | 2* too | 1* awfully | 1* fairly | 1* a
    little | 1* sort of | 1* not very | 1* extremely
adj: 4* good | 3* nice | 3* bad | 3* great | 2* interesting | 2* different | 2* hard | 2* fun | 2*
    expensive | 1* wonderful | 1* awful | 1* terrible | 1* amazing | 1* cheap | 1* strange | 1*
    crazy | 1* easy | 1* long | 1* short | 1* perfect | 1* horrible | 1* special | 1* weird | 1*
    decent | 1* lousy | 1* fantastic | 1* ridiculous | 1* important | 1* normal | 1* unusual | 1*
    favorite | 1* enormous
freq: 4* always | 3* usually | 2* never | 2* still | 2* just | 2* sometimes | 1* hardly ever | 1*
    often | 1* probably | 1* actually | 1* mostly | 1* finally | 1* really
now: now | these days | right now | this week | this year | at the moment | today | again
when.often: every <day> | once a week | twice a month | every night | all the time | on <day>
times: before | once | twice | <num.small> times | several times | already | a few times | many
    times
since: since <year> | since <month> | for <num.small> years | for <num.small> months | since i was
    <age> | for a long time | all <day>
time.past: 2* yesterday | 2* last <day> | 2* in <year> | 2* last <month> | 1* last year | 1* last
    night | 1* <num.small> years ago | 1* a few weeks ago | 1* this morning | 1* on <day> | 1*
    when i was <age> | 1* back in <year> | 1* over the weekend | 1* <num.small> months ago
time.next: 2* next <day> | 2* in <month> | 1* tomorrow | 1* next year | 1* at <clock> | 1* this
    weekend | 1* on <day> | 1* when i'm <age> | 1* pretty soon | 1* someday | 1* in <num.small>
    weeks
who: 6* i | 5* we | 3* they | 2* he | 2* she | 2* <kin> | 2* <person> | 1* people | 1* my friend
    <person> | 1* somebody | 1* nobody | 1* everybody
they: 5* i | 4* we | 3* they | 3* you | 1* people | 1* most people | 1* my parents | 1* <person>
    and <person> | 1* the kids | 1* <person> and i
she: 3* he | 3* she | 2* <kin> | 2* <person> | 1* everybody | 1* nobody | 1* my friend <person>
"""


@cache
def grammar() -> Grammar:
    """The grammar of the corpus, with the rules of all topics."""
    rules = [*_lines(_FRAMES), *_lines(LISTS)]
    for name, topic in TOPICS.items():
        rules += [
            f"{name}.thing: {topic.thing}",
            f"{name}.things: {topic.things}",
            f"{name}.quality: {topic.quality}",
            f"quality.{name}: {topic.quality}",
            f"{name}.say: {topic.say}",
            *_verb_phrases(name, topic),
        ]
    return Grammar(rules, TOPICS)


def _lines(text: str) -> list[str]:
    """Rules of a text; an indented line goes on with the one before."""
    return text.strip().replace("\n    ", " ").splitlines()


def _verb_phrases(name: str, topic: Topic) -> list[str]:
    """Rules `<name.vp.form>`: each form of each verb before each of its objects."""
    phrases: dict[str, list[str]] = {form: [] for form in FORMS}
    for entry in topic.verbs.split("/"):
        verb, _, objects = entry.partition(":")
        for form, word in zip(FORMS, verb.split(), strict=True):
            phrases[form] += [f"{word} {thing}" for thing in objects.split("|")]
    return [f"{name}.vp.{form}: {' | '.join(body)}" for form, body in phrases.items()]
