"""The words: one line each, so that a noun, an adjective or a verb is added by adding a line.

A slash gives a form that the rules of `english` and `french` would get wrong (``man/men``, ``hibou/hiboux``). An
underscore joins the words of one entry (``look_for``, ``pomme_de_terre``). A hyphen alone says that there is none. A
star marks the aspirated h (``*hibou``: le hibou, not l' hibou). The last columns of nouns are classes of meaning, to
which a noun's own name belongs; verbs, adjectives and prepositions say with which classes they make sense.
"""

from .entries import (
    Pronoun,
    read_adjective,
    read_adverb,
    read_determiner,
    read_noun,
    read_preposition,
    read_pronoun,
    read_rows,
    read_verb,
)
from .tokens import Features

# english  french  gender  classes ("mass" has no plural)
_NOUNS = """
man/men                  homme                              m  person,adult
woman/women              femme                              f  person,adult
boy                      garçon                             m  person
girl                     fille                              f  person
child/children           enfant                             m  person,own
guest                    invité                             m  person,adult,own
father                   père                               m  person,adult,own
mother                   mère                               f  person,adult,own
brother                  frère                              m  person,adult,own
sister                   sœur                               f  person,adult,own
grandfather              grand-père/grands-pères            m  person,adult,own
grandmother              grand-mère/grands-mères            f  person,adult,own
uncle                    oncle                              m  person,adult,own
aunt                     tante                              f  person,adult,own
friend                   ami                                m  person,adult,own
neighbour                voisin                             m  person,adult,own
teacher                  professeur                         m  person,adult,own
student                  étudiant                           m  person,adult,own
doctor                   médecin                            m  person,adult,own
nurse                    infirmière                         f  person,adult,own
farmer                   fermier                            m  person,adult
king                     roi                                m  person,adult
queen                    reine                              f  person,adult
princess                 princesse                          f  person,adult
actress                  actrice                            f  person,adult
lawyer                   avocat                             m  person,adult,own
hero/heroes              *héros                             m  person,adult
thief/thieves            voleur                             m  person,adult
witch                    sorcière                           f  person,adult
dog                      chien                              m  animal,own
cat                      chat                               m  animal,own
horse                    cheval                             m  animal,own
bird                     oiseau                             m  animal,own
cow                      vache                              f  animal,own
mouse/mice               souris                             f  animal
wolf/wolves              loup                               m  animal
bear                     ours                               m  animal
rabbit                   lapin                              m  animal,own
owl                      *hibou/hiboux                      m  animal
hedgehog                 *hérisson                          m  animal
monkey                   singe                              m  animal
apple                    pomme                              f  food,fruit
orange                   orange                             f  food,fruit
strawberry               fraise                             f  food,fruit
tomato/tomatoes          tomate                             f  food,fruit
potato/potatoes          pomme_de_terre/pommes_de_terre     f  food
cake                     gâteau                             m  food
egg                      œuf                                m  food
mushroom                 champignon                         m  food
bread                    pain                               m  food,mass
cheese                   fromage                            m  food,mass
meat                     viande                             f  food,mass
soup                     soupe                              f  food,mass
rice                     riz                                m  food,mass
ice_cream                glace                              f  food,mass
water                    eau                                f  drink,mass
milk                     lait                               m  drink,mass
wine                     vin                                m  drink,mass
coffee                   café                               m  drink,mass
book                     livre                              m  text,ware,writing
letter                   lettre                             f  text,writing
newspaper                journal                            m  text,ware
poem                     poème                              m  text,writing
story                    histoire                           f  text,tale,writing
song                     chanson                            f  sound
secret                   secret                             m  tale
key                      clé                                f  thing
hat                      chapeau                            m  thing,garment
coat                     manteau                            m  thing,garment
dress                    robe                               f  thing,garment
shirt                    chemise                            f  thing,garment
shoe                     chaussure                          f  thing,garment
bag                      sac                                m  thing,holder
box                      boîte                              f  thing,lid,holder
bottle                   bouteille                          f  thing,lid,glassy,holder
glass                    verre                              m  thing,glassy,dish,holder
cup                      tasse                              f  thing,glassy,dish
plate                    assiette                           f  thing,glassy,dish
knife/knives             couteau                            m  thing,dish
lamp                     lampe                              f  thing,glassy
umbrella                 parapluie                          m  thing
clock                    horloge                            f  thing,glassy
gift                     cadeau                             m  thing,lid
flower                   fleur                              f  thing
axe                      *hache                             f  thing
table                    table                              f  surface,furniture
chair                    chaise                             f  surface,furniture
bed                      lit                                m  surface,furniture
door                     porte                              f  lid,landmark,own
window                   fenêtre                            f  lid,glassy,landmark,own
wall                     mur                                m  landmark,own
tree                     arbre                              m  landmark,nature,own
car                      voiture                            f  vehicle,own
bicycle                  vélo                               m  vehicle,own
boat                     bateau                             m  vehicle,own
house                    maison                             f  place,building,own,home
garden                   jardin                             m  place,own,home
school                   école                              f  place,goal,building,own,home
church                   église                             f  place,goal,building
hotel                    hôtel                              m  place,goal,building,home
hospital                 hôpital                            m  place,goal,building
library                  bibliothèque                       f  place,goal,building
university               université                         f  place,goal,building
castle                   château                            m  place,goal,building,home
shop                     magasin                            m  place,goal,building,own,home
village                  village                            m  place,goal,own
city                     ville                              f  place,own
street                   rue                                f  place,own,home
forest                   forêt                              f  place,nature
kitchen                  cuisine                            f  place,own,home
bedroom                  chambre                            f  place,own,home
beach                    plage                              f  open,goal,nature
island                   île                                f  open,nature
bridge                   pont                               m  open,landmark
river                    rivière                            f  nature,landmark
"""

# english  gender
_NAMES = """
paul m
pierre m
arthur m
anna f
marie f
alice f
julie f
emma f
claire f
thomas m
louis m
"""

# english  french masculine[/feminine[/masculine before a vowel]]  place  kind (English order)  classes
_ADJECTIVES = """
beautiful    beau/belle/bel             before  opinion  person,animal,thing,text,sound,place,nature
pretty       joli                       before  opinion  garment,place,building,nature,furniture,glassy
good         bon                        before  opinion  adult,food,text,sound,drink
bad          mauvais                    before  opinion  text,sound
big          grand                      before  size     animal,thing,surface,place,open,nature,lid,vehicle
tall         grand                      before  size     adult,boy,girl
small        petit                      before  size     man,woman,boy,girl,child,animal,food,thing,furniture,place,lid
long         long/longue                before  size     text,sound
old          vieux/vieille/vieil        before  age      adult,animal,thing,surface,vehicle,place,text,landmark
young        jeune                      before  age      person,animal
new          nouveau/nouvelle/nouvel    before  novelty  thing,vehicle,text,building,surface,sound
red          rouge                      after   color    garment,vehicle,fruit,wine,thing,lid
green        vert                       after   color    garment,vehicle,fruit,thing,lid,nature
blue         bleu                       after   color    garment,vehicle,thing,lid,glassy
white        blanc/blanche              after   color    garment,animal,building,thing,wine,furniture
black        noir                       after   color    garment,animal,vehicle,thing
grey         gris                       after   color    garment,animal,building,landmark
tired        fatigué                    after   state    person,animal
happy        heureux                    after   state    person
sad          triste                     after   opinion  person,tale,sound
rich         riche                      after   state    adult
ill          malade                     after   state    person,animal
ready        prêt                       after   alone    person
strong       fort                       after   opinion  person,animal
intelligent  intelligent                after   opinion  person,animal
honest       honnête                    after   opinion  person
brave        courageux                  after   opinion  person
curious      curieux                    after   opinion  person,animal
famous       célèbre                    after   opinion  person,text,place,sound
dangerous    dangereux                  after   opinion  animal,place,nature,vehicle
interesting  intéressant                after   opinion  text,place,tale,sound
expensive    cher/chère                 after   opinion  garment,vehicle,wine,coffee,thing
easy         facile                     after   opinion  text
heavy        lourd                      after   state    thing,surface
clean        propre                     after   state    garment,dish,home,animal,vehicle
dirty        sale                       after   state    garment,dish,home,animal,vehicle
empty        vide                       after   state    home,holder
cold         froid                      after   state    soup,meat,rice,potato,drink
hot          chaud                      after   state    soup,meat,rice,potato,coffee,milk,water
italian      italien                    after   origin   person,food,wine,coffee,text,vehicle,sound
english      anglais                    after   origin   person,food,text,vehicle,sound
"""

# english[/past]  french[+preposition]  aspect[+company]  subjects  objects
# The aspect is state (the past is an imperfect), event, or action (an event that is done in some manner).
# The company is with or for, where someone may be added.
_TRANSITIVE = """
eat/ate            manger        action+with  person,animal  food
drink/drank        boire         action+with  person         drink
buy/bought         acheter       event+for    person         food,drink,ware,thing,vehicle,furniture
sell/sold          vendre        event        person         food,ware,thing,vehicle,furniture
find/found         trouver       event+for    person         animal,thing,text
lose/lost          perdre        event        person         thing,text
look_for           chercher      action+for   person         person,animal,thing,text
see/saw            voir          event        person,animal  person,animal,building,nature,vehicle
look_at            regarder      action       person,animal  person,animal,building,nature,furniture,vehicle
read/read          lire          action       person         text
write/wrote        écrire        action+for   person         writing
open               ouvrir        action+for   person         lid
take/took          prendre       event        person         thing,food,ware
help               aider         event        person         person
meet/met           rencontrer    event        person         person
wait_for           attendre      event+with   person         person
answer             répondre+à    action       person         person
enter              entrer+dans   action+with  person,animal  building,place
love               aimer         state        person         person,animal,food,drink,text,place,sound
know/knew          connaître     state        person         person,place,sound
have/had           avoir         state        person         animal,thing,vehicle,ware
"""

# english[/past]  french  aspect[+company]  subjects
_INTRANSITIVE = """
sleep/slept        dormir        event        person,animal
work               travailler    action+with  person
play               jouer         action+with  person,animal
sing/sang          chanter       action+for   person
leave/left         partir        action+with  person,animal
go_out/went        sortir        action+with  person,animal
arrive             arriver       event+with   person
fall/fell          tomber        event        person,animal
stay               rester        event+with   person,animal
get_up/got         se_lever      action       person,animal
hide/hid           se_cacher     event        person,animal
"""

# english[/past]  french  aspect[+company]  subjects  preposition  classes of the place
_MOTION = """
go/went            aller         event  person         to    goal
come/came          venir         event  person,animal  from  goal,place
live               habiter       state  person         in    place
"""

# english[/past]  french  aspect[+company]  subjects  things given ("-": none)
_GIVING = """
give/gave          donner        event  person  thing,food,ware,animal
show               montrer       event  person  thing,text,building
send/sent          envoyer       event  person  thing,text
tell/told          raconter      event  person  tale
speak/spoke        parler        event  person  -
"""

# english[/past]  french  aspect[+company]  subjects
_SAYING = """
say/said           dire          event  person
think/thought      penser        state  person
know/knew          savoir        state  person
"""

# english[/past]  french[+preposition of the infinitive]  aspect  subjects
_CONTROL = """
want               vouloir       state  person,animal
like               aimer         state  person,animal
begin/began        commencer+à   event  person,animal
try/tried          essayer+de    event  person,animal
be_going/was       aller         state  person,animal
can/could          pouvoir       state  person,animal
must/-             devoir        state  person,animal
"""

# english  french  classes of what follows
_PREPOSITIONS = """
in           dans      place
on           sur       surface,open
under        sous      surface,tree
behind       derrière  building,landmark
in_front_of  devant    building,landmark
near         près_de   building,landmark,nature
far_from     loin_de   building,landmark,nature
with         avec      person
for          pour      person
to           à         goal
from         de        goal,place
of           de        building,person
between      entre     building,landmark
"""

# english singular  plural  french m singular  f singular  m plural  f plural
# A bar separates words that are translated one by one.
_DETERMINERS = """
the         the         le                la                 les            les
a           some        un                une                des            des
some        -           de_le             de_la              -              -
this        these       ce                cette              ces            ces
my          my          mon               ma                 mes            mes
our         our         notre             notre              nos            nos
your        your        votre             votre              vos            vos
his         his         son               sa                 ses            ses
her         her         son               sa                 ses            ses
their       their       leur              leur               leurs          leurs
every       -           chaque            chaque             -              -
-           several     -                 -                  plusieurs      plusieurs
-           many        -                 -                  beaucoup_de    beaucoup_de
-           all|the     -                 -                  tous|les       toutes|les
whose       whose       dont_le           dont_la            dont_les       dont_les
"""

# english subject  object  person  number  gender  french subject  direct  indirect  reflexive
_PRONOUNS = """
i      me    1  singular  m  je    me    me    me
you    you   2  plural    m  vous  vous  vous  vous
he     him   3  singular  m  il    le    lui   se
she    her   3  singular  f  elle  la    lui   se
we     us    1  plural    m  nous  nous  nous  nous
they   them  3  plural    m  ils   les   leur  se
it     it    3  singular  m  il    le    lui   se
it     it    3  singular  f  elle  la    lui   se
them   them  3  plural    f  elles les   leur  se
"""

# english  french  kind  tenses  [links, where the words are not translated one by one]
_ADVERBS = """
often           souvent                frequency  past,present,future
always          toujours               frequency  past,present,future
sometimes       parfois                frequency  past,present,future
slowly          lentement              manner     past,present,future
quickly         rapidement             manner     past,present,future
calmly          calmement              manner     past,present,future
carefully       prudemment             manner     past,present,future
here            ici                    place      past,present,future
there           là-bas                 place      past,present,future
everywhere      partout                place      past,present,future
outside         dehors                 place      past,present,future
yesterday       hier                   time       past
last_week       la_semaine_dernière    time       past            0-2 1-0 1-1
this_morning    ce_matin               time       past
today           aujourd'hui            time       present,past
now             maintenant             time       present
every_day       chaque_jour            time       present
tomorrow        demain                 time       future
soon            bientôt                time       future
next_week       la_semaine_prochaine   time       future          0-2 1-0 1-1
this_evening    ce_soir                time       future
"""

NUMERALS = {
    "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six", "seven": "sept",
    "eight": "*huit", "nine": "neuf", "ten": "dix", "eleven": "*onze", "twelve": "douze",
}  # fmt: skip
# a beautiful big clean old red italian car; "alone" comes only after be
ADJECTIVE_ORDER = ("opinion", "size", "state", "age", "novelty", "color", "origin", "alone")
DEGREES = {"very": "très", "too": "trop"}
COMPARISONS = {"more": ("plus", "than"), "less": ("moins", "than"), "as": ("aussi", "as")}
SENSATIONS = {"hungry": "faim", "thirsty": "soif", "right": "raison", "wrong": "tort"}
NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
CONJUNCTIONS = {
    "and": "et", "or": "ou", "but": "mais", "because": "parce que", "when": "quand", "if": "si", "that": "que",
}  # fmt: skip
QUESTION_WORDS = {"what": "que", "where": "où", "why": "pourquoi", "when": "quand"}

NOUNS = {noun.english: noun for noun in map(read_noun, read_rows(_NOUNS))}
NAMES = {name: Features(gender) for name, gender in read_rows(_NAMES)}
ADJECTIVES = {adjective.english: adjective for adjective in map(read_adjective, read_rows(_ADJECTIVES))}
TRANSITIVE, INTRANSITIVE, MOTION, GIVING, SAYING, CONTROL = (
    {verb.english: verb for verb in map(read_verb, read_rows(table))}
    for table in (_TRANSITIVE, _INTRANSITIVE, _MOTION, _GIVING, _SAYING, _CONTROL)
)
BE = read_verb(["be/was", "être", "state", "-"])
FEEL = read_verb(["be/was", "avoir", "state", "-"])  # is hungry: a faim; is ten years old: a dix ans; there is: il y a
PREPOSITIONS = {preposition.english: preposition for preposition in map(read_preposition, read_rows(_PREPOSITIONS))}
DETERMINERS = {determiner.name: determiner for determiner in map(read_determiner, read_rows(_DETERMINERS))}
PRONOUNS = [read_pronoun(row) for row in read_rows(_PRONOUNS)]
WHO = Pronoun("who", "", Features(), "qui", "", "", "")  # of questions
ADVERBS = {adverb.english: adverb for adverb in map(read_adverb, read_rows(_ADVERBS))}
