"""Plans of stories, and stories told by them.

A plan says events of `events.txt` in an order that their needs allow, and branches.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from tfbook.data.stories.lexicon import ABLE, FOOD, FRAGILE, KIND, MEAN, NOUNS, SPECIES, SPOTS, Person, Thing
from tfbook.data.stories.teller import Story, Stuck, Teller, World

TOYS = frozenset(NOUNS) - FOOD  # what one can keep


def begin(t: Teller) -> tuple[Person, str]:
    """A hero and a home."""
    A, home = t.person(), t.place()
    t.say("begin", A=A, p=home)
    return A, home


def begin_with(t: Teller, of: Collection[str] = NOUNS) -> tuple[Person, str, Thing]:
    """A hero, a home, and something to own."""
    (A, home), o = begin(t), t.thing(of)
    t.say("own", A=A, o=o)
    return A, home, o


def end(t: Teller, A: Person, B: Person | None = None) -> None:
    """The ending that follows from the facts; a good one may be shared with a friend."""
    if t.state.facts.get(("trouble", A.name)):
        if ("mood", A.name) not in t.state.facts and t.chance(0.5):
            t.say("sad", A=A)
        t.say("sadend", A=A)
    elif B is None:
        t.say("joy", A=A)
        t.say("happyalone", A=A)
    else:
        t.say("thank", A=A, B=B)
        t.say("happyend", A=A, B=B)


def lost(t: Teller) -> None:
    """A thing is lost; somebody may have found it."""
    A, _, o = begin_with(t, TOYS)
    p, r, spot = t.place(), t.place(), t.one(SPOTS)
    t.say("go", A=A, p=p)
    if t.chance(0.3):
        t.say("play", A=A, o=o)
    t.say("lose", A=A, o=o, p=p)
    if t.chance(0.6):
        t.say("sad", A=A)
    t.say("search", A=A, o=o, p=r)
    how = t.one(("found", "kept", "together", "gone", "alone"))
    if how == "alone":
        t.say("go", A=A, p=p)
        t.say("find", A=A, o=o, p=p, s=spot)
        end(t, A)
        return
    B = t.person(MEAN if how == "kept" else KIND)
    t.say("meet", A=A, B=B, p=r)
    t.say("ask", A=A, B=B, o=o)
    if how in ("found", "kept"):
        t.say("picked", A=A, B=B, o=o, p=p, s=spot)
        t.say("return" if how == "found" else "keep", A=A, B=B, o=o)
    else:
        t.say("unseen", A=A, B=B, o=o)
        if how == "together":
            t.say("together", A=A, B=B, o=o, p=p)
            t.say("find", A=A, o=o, p=p, s=spot)
        else:
            t.say("unfound", A=A, o=o)
    end(t, A, B)


def wish(t: Teller) -> None:
    """Somebody has what the hero would love to have."""
    A, _, q = begin_with(t)
    how = t.one(("trade", "refuse", "gift", "share", "work", "refuse"))
    p, o, B = t.place(), t.thing(TOYS if how == "share" else NOUNS), t.person(MEAN if how == "refuse" else KIND)
    t.say("go", A=A, p=p)
    t.say("meet", A=A, B=B, p=p)
    t.say("show", A=A, B=B, o=o)
    t.say("want", A=A, B=B, o=o)
    if how in ("trade", "refuse"):
        t.say("offer", A=A, B=B, o=o, q=q)
        t.say(how, A=A, B=B, o=o, q=q)
    else:
        if how == "work":
            t.say("work", A=A, B=B, o=o)
        t.say("share" if how == "share" else "gift", A=A, B=B, o=o)
    end(t, A, B)


def obstacle(t: Teller) -> None:
    """A thing is out of reach, and only some animals can help."""
    k, p = t.one(tuple(ABLE)), t.place()
    if t.chance(0.5):
        A, _, o = begin_with(t, TOYS)
        t.say("go", A=A, p=p)
        t.say("stuck", A=A, o=o, p=p, k=k)
    else:
        (A, _), o = begin(t), t.thing()
        t.say("go", A=A, p=p)
        t.say("see", A=A, o=o, p=p, k=k)
    if t.chance(0.7):
        t.say("try", A=A, o=o, k=k)
    how = t.one(("help", "help", "second", "second", "mean"))
    if how != "help":
        C = t.person(MEAN if how == "mean" else KIND, [kin for kin in SPECIES if kin not in ABLE[k]])
        t.say("meet", A=A, B=C, p=p)
        t.say("nohelp" if how == "mean" else "useless", A=A, B=C, o=o, k=k)
    if how == "mean":
        end(t, A)
        return
    B = t.person(KIND, ABLE[k])
    t.say("meet", A=A, B=B, p=p)
    if how == "help" and t.chance(0.5):
        t.say("why", A=A, B=B)
    t.say("help", A=A, B=B, o=o, k=k)
    t.say("return", A=A, B=B, o=o)
    end(t, A, B)


def quarrel(t: Teller) -> None:
    """Two friends want one thing."""
    A, home, o = begin_with(t, TOYS)
    good = t.chance(0.6)
    B = t.person(KIND if good else MEAN)
    t.say("friend", A=A, B=B, p=home)
    if t.chance(0.5):
        t.say("weather")
    t.say("play", A=A, o=o)
    t.say("quarrel", A=A, B=B, o=o)
    t.say("apart", A=A, B=B)
    if t.chance(0.5):
        t.say("sad", A=A)
    t.say("sorry", A=A, B=B)
    t.say("peace" if good else "nopeace", A=A, B=B)
    if good and t.chance(0.5):
        t.say("give", A=A, B=B, o=o)
    end(t, A, B)


def journey(t: Teller) -> None:
    """A present for a friend who lives far away."""
    A, _ = begin(t)
    B, o, far, p = t.person(), t.thing(), t.place(), t.place()
    t.say("lives", A=A, B=B, p=far)
    t.say("make", A=A, B=B, o=o)
    t.say("pass", A=A, p=p)
    how = t.one(("plain", "beggar", "drop"))
    if how == "drop":
        t.say("drop", A=A, o=o, p=p)
        end(t, A)
        return
    if how == "beggar":
        C = t.person(MEAN)
        t.say("meet", A=A, B=C, p=p)
        t.say("beg", A=A, C=C, o=o)
        t.say("hold", A=A, C=C, o=o)
    elif t.chance(0.5):
        t.say("weather")
    t.say("arrive", A=A, B=B, p=far)
    t.say("give", A=A, B=B, o=o)
    t.say("thank", A=B, B=A)
    t.say("happyend", A=A, B=B)


def secret(t: Teller) -> None:
    """A thing is hidden, and one friend knows where."""
    A, home, o = begin_with(t, TOYS)
    good = t.chance(0.5)
    B, p, spot = t.person(KIND if good else MEAN), t.place(), t.one(SPOTS)
    t.say("friend", A=A, B=B, p=home)
    t.say("hide", A=A, o=o, p=p, s=spot)
    t.say("gohome", A=A, p=home)
    t.say("tell", A=A, B=B, o=o, p=p, s=spot)
    if good:
        t.say("loyal", A=A, B=B)
        t.say("fetch", A=A, o=o, p=p, s=spot)
        t.say("joy", A=A)
        t.say("happyend", A=A, B=B)
    else:
        t.say("steal", A=A, B=B, o=o, p=p, s=spot)
        end(t, A)


def mistake(t: Teller) -> None:
    """A borrowed thing breaks."""
    A, home = begin(t)
    how = t.one(("forgive", "angry", "lie", "forgive"))
    B, o = t.person(MEAN if how == "angry" else KIND), t.thing(FRAGILE)
    t.say("friend", A=A, B=B, p=home)
    t.say("show", A=A, B=B, o=o)
    t.say("borrow", A=A, B=B, o=o)
    t.say("break", A=A, B=B, o=o)
    if t.chance(0.7):
        t.say("afraid", A=A, B=B)
    t.say("lie" if how == "lie" else "confess", A=A, B=B, o=o)
    t.say("forgive" if how == "forgive" else "angry", A=A, B=B, o=o)
    end(t, A, B)


def race(t: Teller) -> None:
    """Who boasts falls asleep; who does not may win, and may share."""
    A, home = begin(t)
    proud = t.chance(0.5)
    B, o, far = t.person(MEAN if proud else KIND), t.thing(TOYS), t.place()
    t.say("friend", A=A, B=B, p=home)
    t.say("boast" if proud else "dare", A=A, B=B, o=o)
    t.say("race", A=A, B=B, o=o, p=far)
    if proud:
        t.say("nap", A=A, B=B, o=o)
        t.say("win", A=A, B=B, o=o)
        end(t, A)
        return
    t.say("beaten", A=A, B=B, o=o)
    how = t.one(("share", "gift", "keep"))
    if how == "keep":
        t.say("sad", A=A)
    else:
        t.say(how, A=A, B=B, o=o)
    end(t, A, B)


DEFAULT = World()
PLOTS = (lost, wish, obstacle, quarrel, journey, secret, mistake, race)


def story(seed: int, world: World = DEFAULT) -> Story:
    """The story of a seed; one that is too short, too long, or finds nobody for a part is drawn again."""
    for attempt in range(1000):
        teller = Teller(world, random.Random(1000 * seed + attempt))
        plot = teller.one(PLOTS)
        try:
            plot(teller)
        except Stuck:
            continue
        if world.shortest <= len(teller.words) <= world.longest:
            return Story(tuple(teller.words), plot.__name__, tuple(teller.told), teller.state, teller.bits)
    raise ValueError(f"seed {seed} gives no story of {world.shortest} to {world.longest} tokens in {world}")
