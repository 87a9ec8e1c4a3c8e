"""Rules for whom, where, when and how much: names, places, numbers, things of every day."""

LISTS = """
kin: 5* my <kin.word> | 1* my <kin.word> <person> | 1* his <kin.word> | 1* her <kin.word> | 1*
    their <kin.word>
kin.your: your <kin.word>
kin.word: 3* husband | 3* wife | 3* mother | 3* father | 3* brother | 3* sister | 2* son | 2*
    daughter | 2* mom | 2* dad | 1* uncle | 1* aunt | 1* cousin | 1* grandmother | 1* grandfather
    | 1* neighbor | 1* roommate | 1* boyfriend | 1* girlfriend | 1* niece | 1* nephew | 1* stepson
a.person: a_ <job> | a girl | a boy | a guy | a woman | a man
person: <man> | <woman>
man: 3* john | 3* mike | 2* david | 2* bob | 2* jim | 2* bill | 1* tom | 1* tim | 1* kim | 1* dan
    | 1* don | 1* ron | 1* rob | 1* ray | 1* roy | 1* jack | 1* mark | 1* mack | 1* paul | 1* carl
    | 1* peter | 1* steven | 1* kevin | 1* brian | 1* ryan | 1* george | 1* frank | 1* larry | 1*
    harry | 1* gary | 1* jerry | 1* terry | 1* eric | 1* scott | 1* todd | 1* adam | 1* alan | 1*
    andrew | 1* walter | 1* henry
woman: 3* mary | 2* susan | 2* karen | 2* linda | 2* lisa | 1* nancy | 1* betty | 1* patty | 1*
    carol | 1* sharon | 1* sarah | 1* laura | 1* anna | 1* hannah | 1* jane | 1* jean | 1* joan |
    1* ellen | 1* helen | 1* kathy | 1* cathleen | 1* debbie | 1* donna | 1* diane | 1* julie | 1*
    judy | 1* amy | 1* emily | 1* alice | 1* martha | 1* ruth | 1* rose | 1* molly | 1* polly | 1*
    holly | 1* sandy | 1* cindy | 1* wendy | 1* brenda | 1* tina
pet.name: max | rex | buddy | molly | lucky | tiger | smokey | bear | princess | shadow | ginger |
    pepper | daisy | lady
city: 3* dallas | 3* chicago | 2* houston | 2* boston | 2* new york | 2* atlanta | 2* denver | 1*
    austin | 1* seattle | 1* portland | 1* phoenix | 1* detroit | 1* memphis | 1* miami | 1*
    cleveland | 1* baltimore | 1* philadelphia | 1* washington | 1* san francisco | 1* san antonio
    | 1* san diego | 1* los angeles | 1* saint louis | 1* kansas city | 1* oklahoma city | 1*
    minneapolis | 1* milwaukee | 1* indianapolis | 1* pittsburgh | 1* orlando | 1* tampa | 1*
    nashville | 1* louisville | 1* richmond | 1* charlotte | 1* las vegas | 1* salt lake city | 1*
    albany | 1* buffalo | 1* columbus
country: 2* mexico | 2* canada | 2* england | 1* france | 1* germany | 1* italy | 1* spain | 1*
    ireland | 1* scotland | 1* japan | 1* china | 1* india | 1* russia | 1* brazil | 1* greece |
    1* egypt | 1* australia | 1* hawaii | 1* alaska | 1* florida | 1* texas | 1* california | 1*
    colorado | 1* arizona | 1* virginia | 1* carolina | 1* michigan | 1* oregon | 1* utah | 1*
    maine
job: 2* teacher | 2* nurse | 2* lawyer | 2* secretary | 1* doctor | 1* engineer | 1* mechanic | 1*
    carpenter | 1* plumber | 1* electrician | 1* painter | 1* writer | 1* waiter | 1* waitress |
    1* banker | 1* baker | 1* butcher | 1* barber | 1* farmer | 1* fireman | 1* policeman | 1*
    soldier | 1* sailor | 1* pilot | 1* driver | 1* dentist | 1* chemist | 1* scientist | 1*
    programmer | 1* reporter | 1* manager | 1* salesman | 1* cashier | 1* librarian | 1* musician
    | 1* photographer | 1* minister | 1* coach | 1* cook | 1* tailor
day: monday | tuesday | wednesday | thursday | friday | saturday | sunday
month: january | february | march | april | may | june | july | august | september | october |
    november | december
digit: one | two | three | four | five | six | seven | eight | nine | zero | oh
num.small: 4* two | 4* three | 3* four | 2* five | 2* six | 1* seven | 1* eight | 1* nine | 1* ten
num.teen: 1* ten | 1* eleven | 2* twelve | 1* thirteen | 1* fourteen | 2* fifteen | 1* sixteen |
    1* seventeen | 1* eighteen | 1* nineteen | 2* twenty
tens: twenty | thirty | forty | fifty | sixty | seventy | eighty | ninety
unit: one | two | three | four | five | six | seven | eight | nine
num.tens: 2* <tens> | 2* <tens> <unit> | 1* a hundred
num.big: 2* <unit> hundred | 1* a hundred | 1* <num.tens> thousand | 1* <unit> hundred and <tens>
    | 1* a thousand
age: 2* <num.teen> | 2* <tens> <unit> | 1* <num.small> | 1* <tens>
year: 3* nineteen <decade> <unit> | 1* nineteen <decade> | 1* two thousand and <unit> | 1* two
    thousand
decade: forty | fifty | sixty | seventy | eighty | ninety
clock: 2* <hour> o'clock | 1* <hour> thirty | 1* <hour> fifteen | 1* half past <hour> | 1* noon |
    1* midnight | 1* <hour> forty five | 1* quarter to <hour>
hour: one | two | three | four | five | six | seven | eight | nine | ten | eleven | twelve
price: 2* <num.tens> thousand dollars | 1* <unit> hundred dollars | 1* <unit> thousand dollars |
    1* a million dollars | 1* <unit> thousand <unit> hundred dollars
price.small: 2* <num.tens> dollars | 1* <unit> dollars | 1* <num.teen> dollars | 1* <unit> hundred
    dollars | 1* <unit> <tens> <unit> | 1* <num.teen> <tens> five
food: 2* chicken | 2* rice | 2* fish | 2* beef | 1* pork | 1* steak | 1* ham | 1* lamb | 1* shrimp
    | 1* turkey | 1* bacon | 1* pasta | 1* bread | 1* butter | 1* cheese | 1* milk | 1* cream | 1*
    sugar | 1* salt | 1* garlic | 1* corn | 1* peas | 1* beans | 1* spinach | 1* broccoli | 1*
    lettuce | 1* cabbage | 1* pumpkin | 1* chocolate | 1* ice cream | 1* yogurt | 1* honey | 1*
    lemon | 1* coffee | 1* tea | 1* wine | 1* beer | 1* juice | 1* chili | 1* barbecue
cuisine: mexican | chinese | italian | french | greek | japanese | indian | german | spanish |
    thai
instrument: the piano | the guitar | the violin | the drums | the flute | the trumpet | the
    clarinet | the cello | the organ | the banjo
genre: country | classical | jazz | rock | blues | folk | rap | gospel | soul | pop | opera |
    reggae
sport: 2* football | 2* baseball | 2* basketball | 1* soccer | 1* tennis | 1* golf | 1* hockey |
    1* volleyball | 1* softball | 1* racquetball | 1* bowling | 1* boxing | 1* wrestling | 1*
    skiing | 1* swimming | 1* rugby | 1* cricket
animal: dog | cat | horse | cow | pig | sheep | goat | duck | goose | deer | bear | wolf | fox |
    rabbit | raccoon | skunk | snake | turtle | frog | parrot | monkey | elephant | tiger | donkey
    | squirrel | mouse
car: ford | chevy | toyota | honda | buick | dodge | volvo | nissan | mazda | cadillac | jeep |
    van | truck | convertible | wagon | pickup
color: red | blue | green | yellow | black | white | brown | gray | orange | purple | silver |
    gold | tan | pink
room: kitchen | bathroom | bedroom | basement | attic | garage | living room | dining room |
    hallway | porch | den
body: back | knee | arm | leg | foot | hand | finger | thumb | toe | ankle | elbow | shoulder |
    neck | head | nose | ear | wrist | hip
subject: math | english | history | science | biology | chemistry | physics | french | spanish |
    german | music | art | accounting | psychology | geography | law | philosophy | economics
grade: first | second | third | fourth | fifth | sixth | seventh | eighth
clothes: shoes | boots | pants | jeans | socks | shirts | dresses | gloves | sweaters | skirts |
    jackets | ties | hats
clothes.one: shirt | skirt | dress | jacket | coat | hat | sweater | suit | tie | belt | scarf |
    blouse | purse | watch
filler: 5* uh | 4* um | 3* you know | 2* i mean | 2* well | 1* like
"""
