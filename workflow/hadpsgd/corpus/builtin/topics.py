"""What is talked about: for each topic things, qualities, verbs with their objects, sentences.

`verbs` are lines `base 3rd past ing participle : objects`, separated by ` / `; from them rules
`<topic.vp.base>`, `.s`, `.past`, `.ing` and `.pp` are made.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Words of a topic; each field but `verbs` is the right side of a grammar rule."""

    thing: str
    things: str
    quality: str
    verbs: str
    say: str


TOPICS: dict[str, Topic] = {
    "family": Topic(
        thing="wedding|family|baby|birthday|cousin|grandson|marriage|party|picture|letter|visit",
        things="kids|children|parents|cousins|sisters|brothers|twins|babies|grandparents|relatives"
        "|photographs|birthdays|letters|nephews|daughters|sons",
        quality="close|young|old|grown|married|single|sweet|loud|shy|tall|proud|stubborn|older"
        "|younger|quiet",
        verbs="raise raises raised raising raised : the kids|three children|<num.small> boys /"
        "visit visits visited visiting visited : <kin>|<kin> in <city>|my parents|my relatives /"
        "marry marries married marrying married : <person>|<a.person> from <city> /"
        "call calls called calling called : <kin>|<kin> <when.often>|<person> /"
        "miss misses missed missing missed : <kin>|my family|the children|<person> /"
        "name names named naming named : the baby <person>|my daughter <woman>|my son <man> /"
        "hug hugs hugged hugging hugged : the baby|my grandmother",
        say="my <kin.word> is <age> years old now|i've got <num.small> kids , <num.small> boys and"
        " a_ girl|<person> and <person> are getting married in <month>|my <kin.word> lives in"
        " <city> with <person>|we named her <woman> after my grandmother|he was born in <year>"
        "|there were <num.small> of us growing up|my daughter <woman> turned <age> in <month>"
        "|she looks just like her mother|our son <man> is <age> and he wants to be a_ <job>",
    ),
    "work": Topic(
        thing="job|office|boss|company|meeting|career|contract|salary|business|desk|interview"
        "|shift|factory|project|deadline|raise|customer",
        things="hours|meetings|jobs|benefits|customers|people|managers|projects|offices|reports"
        "|contracts|workers|employees",
        quality="busy|stressful|boring|steady|temporary|permanent|professional|difficult|tough"
        "|important|part time|full time|retired|successful",
        verbs="work works worked working worked : as a_ <job>|for a_ <adj> company|in a_ factory"
        "|at the hospital|for <person>|<num.small> days a week|on the project /"
        "hire hires hired hiring hired : a_ <job>|two <adj> people|a new <job> /"
        "manage manages managed managing managed : the office|<num.teen> people|a store /"
        "quit quits quit quitting quit : my job|the company|last <month> /"
        "sell sells sold selling sold : insurance|furniture|computers|shoes|real estate /"
        "finish finishes finished finishing finished : the report|the project|work at <clock>",
        say="i work as a_ <job> for a company in <city>|my <kin.word> is a_ <job> and she loves it"
        "|i've been there for <num.teen> years|i'm a_ <job> , what do you do|i get up at <clock>"
        " and drive to the office|they laid off <num.big> people last <month>"
        "|he makes about <price> a year|i started as a_ <job> in <year>|my boss is a guy named"
        " <man>|we have a meeting every <day> at <clock>|i'd rather be a_ <job> than a_ <job>",
    ),
    "weather": Topic(
        thing="weather|storm|summer|winter|spring|snow|rain|wind|heat|sky|forecast|temperature"
        "|lightning|sunshine|fog|hurricane|tornado",
        things="storms|winters|summers|clouds|tornadoes|showers|degrees|roads|leaves|hurricanes",
        quality="hot|cold|humid|dry|warm|cool|windy|cloudy|sunny|wet|freezing|mild|icy|foggy|gray",
        verbs="shovel shovels shoveled shoveling shoveled : the snow|the driveway /"
        "watch watches watched watching watched : the storm|the forecast|the rain /"
        "hate hates hated hating hated : the heat|the cold|the rain|the winter here /"
        "enjoy enjoys enjoyed enjoying enjoyed : the sunshine|the snow|the fall|the spring /"
        "stay stays stayed staying stayed : inside|home|warm|in the house all day",
        say="it was <num.tens> degrees here <time.past>|it's supposed to rain on <day>"
        "|it rained for <num.small> days straight|we had <num.teen> inches of snow in <month>"
        "|it gets up to <num.tens> degrees in <month>|how's the weather in <city>"
        "|it's been really <quality.weather> since <day>|the wind was blowing <num.tens> miles an"
        " hour|it hardly ever snows in <city>|the power went out at <clock>",
    ),
    "food": Topic(
        thing="dinner|lunch|breakfast|restaurant|kitchen|recipe|dessert|sandwich|salad|soup|pizza"
        "|cake|pie|meal|menu|cook|sauce",
        things="vegetables|potatoes|tomatoes|beans|carrots|onions|mushrooms|cookies|eggs|noodles"
        "|apples|peaches|peppers|restaurants|recipes|leftovers|snacks",
        quality="spicy|delicious|fresh|sweet|sour|salty|healthy|greasy|fried|baked|frozen|burnt"
        "|homemade|fattening|bitter|crispy",
        verbs="cook cooks cooked cooking cooked : <food>|<food> and <food>|dinner|a big meal /"
        "eat eats ate eating eaten : <food>|<food> for lunch|out|at a_ <cuisine> restaurant /"
        "bake bakes baked baking baked : a cake|cookies|bread|an apple pie|<food> /"
        "order orders ordered ordering ordered : <food>|a pizza|the <food> and the <food> /"
        "taste tastes tasted tasting tasted : the soup|the sauce|the <food> /"
        "grill grills grilled grilling grilled : <food>|steaks|hamburgers",
        say="i love <cuisine> food|we usually have <food> with <food>|there's a good <cuisine>"
        " restaurant in <city>|you put in <num.small> eggs and a cup of <food>|i can't stand <food>"
        "|my <kin.word> makes the best <food>|you bake it for <num.tens> minutes"
        "|it cost <price.small> for the two of us|have you ever had <food> with <food>"
        "|i'm on a diet so no <food> or <food>|do you like <cuisine> or <cuisine> food better",
    ),
    "movies": Topic(
        thing="movie|show|theater|actor|actress|story|ending|video|channel|comedy|mystery|screen"
        "|director|ticket|cartoon|scene",
        things="movies|comedies|shows|videos|commercials|tickets|cartoons|mysteries|westerns|actors"
        "|musicals|previews",
        quality="funny|scary|violent|romantic|exciting|predictable|serious|famous|dull|hilarious"
        "|strange|foreign|classic|gory|silly",
        verbs="watch watches watched watching watched : a movie|the news|television|cartoons"
        "|a_ <quality.movies> movie|that show on <day> /"
        "see sees saw seeing seen : that movie|a_ <quality.movies> movie|<person> in that show /"
        "rent rents rented renting rented : a video|a movie|<num.small> movies /"
        "record records recorded recording recorded : the show|the game|a movie /"
        "recommend recommends recommended recommending recommended : that movie|the book",
        say="the last movie i saw was about a_ <job> in <city>|it starts at <clock> on <day>"
        "|the ending was so <quality.movies>|tickets cost <price.small> now"
        "|i fell asleep before the end|it was made in <year>|he plays a_ <job> who goes to <city>"
        "|i'd rather wait for the video|it's about a_ <animal> and a_ <job>"
        "|we rented <num.small> movies last <day>|she won an award for it",
    ),
    "music": Topic(
        thing="song|band|concert|guitar|piano|radio|album|station|singer|choir|record|violin|drum"
        "|orchestra|dance|stereo",
        things="songs|records|lyrics|concerts|bands|tapes|singers|drums|guitars|lessons|musicians",
        quality="loud|soft|slow|classical|modern|popular|beautiful|catchy|live|electric|mellow",
        verbs="play plays played playing played : <instrument>|<instrument> in a band|that song /"
        "sing sings sang singing sung : in the choir|that song|at church|with <person> /"
        "hear hears heard hearing heard : that song|the band|a_ <adj> concert in <city> /"
        "buy buys bought buying bought : the album|a guitar|<num.small> tickets|a record /"
        "practice practices practiced practicing practiced : <instrument>|every <day>",
        say="i like <genre> music|my <kin.word> plays <instrument> in a band|i took <instrument>"
        " lessons for <num.small> years|we saw them in <city> in <year>|i listen to <genre> and"
        " some <genre>|turn down the radio , <person>|what kind of music do you listen to"
        "|i never cared for <genre> music|she's been singing since she was <age>"
        "|the concert is on <day> at <clock>",
    ),
    "sports": Topic(
        thing="game|team|season|coach|player|score|league|stadium|championship|ball|race|match"
        "|tournament|playoff|court|uniform",
        things="games|players|teams|points|fans|coaches|sports|innings|scores|runs|yards|referees",
        quality="fast|strong|rough|competitive|close|amateur|professional|athletic|injured|lucky"
        "|terrible|slow",
        verbs="play plays played playing played : <sport>|<sport> on <day>|<sport> in college /"
        "watch watches watched watching watched : <sport>|the game|<sport> on television /"
        "win wins won winning won : the game|by <num.small> points|the championship in <year> /"
        "lose loses lost losing lost : the game|by <num.teen>|<num.small> games in a row /"
        "coach coaches coached coaching coached : <sport>|my son's team|a girls team /"
        "run runs ran running run : <num.small> miles|a race|every <day>",
        say="the score was <num.teen> to <num.teen>|do you follow <sport> or <sport>"
        "|<city> beat <city> by <num.small> points|i played <sport> until i hurt my <body>"
        "|they haven't won since <year>|i'm a big <city> fan|we run <num.small> miles every <day>"
        "|the tickets were <price.small> each|their best player broke his <body>"
        "|<man> hit <num.tens> home runs last season",
    ),
    "travel": Topic(
        thing="trip|vacation|beach|hotel|flight|airport|cruise|island|mountain|lake|camp|tent"
        "|suitcase|map|passport|museum|tour|train",
        things="trips|mountains|beaches|tickets|bags|hotels|pictures|museums|lakes|islands|parks"
        "|tourists|airports|planes",
        quality="crowded|expensive|gorgeous|relaxing|foreign|quiet|cheap|historic|peaceful|rocky"
        "|tropical|remote|pretty",
        verbs="go goes went going gone : to <city>|to <country>|to the beach|camping|fishing"
        "|to <city> with <kin>|to <country> in <year> /"
        "fly flies flew flying flown : to <city>|from <city> to <city>|to <country> /"
        "drive drives drove driving driven : to <city>|through <city>|from <city> to <city> /"
        "camp camps camped camping camped : by the lake|in the mountains|near <city> /"
        "travel travels traveled traveling traveled : to <country>|with <kin>|around <country> /"
        "pack packs packed packing packed : the car|a suitcase|the tent",
        say="we drove from <city> to <city>|the flight to <city> was <num.small> hours late"
        "|we're going to <country> in <month>|it's about <num.big> miles from <city>"
        "|i've always wanted to see <country>|we stayed <num.small> nights in <city>"
        "|the plane leaves at <clock> on <day>|i lived in <country> until <year>"
        "|<city> is nicer than <city>|the hotel was <price.small> a night",
    ),
    "cars": Topic(
        thing="car|truck|engine|van|motor|garage|mechanic|brake|tire|battery|dealer|license|highway"
        "|bumper|transmission|motorcycle",
        things="cars|trucks|tires|miles|brakes|windows|lights|parts|keys|payments|repairs|seats"
        "|accidents|wheels",
        quality="used|new|rusty|reliable|fast|foreign|american|japanese|automatic|dented|broken"
        "|small|noisy|economical",
        verbs="drive drives drove driving driven : a_ <color> <car>|a truck"
        "|<num.tens> miles to work|a_ <year> <car> /"
        "fix fixes fixed fixing fixed : the brakes|the engine|my car|the <color> <car> /"
        "buy buys bought buying bought : a_ <color> <car>|a new truck|a used car /"
        "park parks parked parking parked : the car|on the street|behind the house /"
        "change changes changed changing changed : the oil|the tires|the battery /"
        "trade trades traded trading traded : it in|the van for a_ <car>",
        say="it's a_ <color> <year> <car>|i paid <price> for it in <year>|it has <num.tens>"
        " thousand miles on it|the mechanic wanted <price.small> for the"
        " brakes|i've got a_ <color> <car>"
        " and a_ <color> <car>|it gets <num.tens> miles to the gallon|my <kin.word> hit a_ <animal>"
        " with the truck|it wouldn't start on <day>|insurance is <price.small> a month",
    ),
    "pets": Topic(
        thing="dog|cat|puppy|kitten|bird|horse|rabbit|fish|turtle|pet|cage|leash|hamster|snake|vet",
        things="dogs|cats|puppies|kittens|fleas|horses|birds|animals|squirrels|pets|goldfish|cows",
        quality="friendly|gentle|smart|lazy|mean|fuzzy|playful|hungry|wild|tame|black|spotted|furry",
        verbs="walk walks walked walking walked : the dog|<pet.name>|<pet.name> every <day> /"
        "feed feeds fed feeding fed : the cats|the dog|the birds|<pet.name> /"
        "chase chases chased chasing chased : the cat|squirrels|a_ <animal>|cars /"
        "train trains trained training trained : the dog|the puppy|horses /"
        "find finds found finding found : a kitten|a_ <animal> in the yard|<pet.name> /"
        "bite bites bit biting bitten : the mailman|my <body>|<person>",
        say="we have a_ <color> cat named <pet.name>|our dog <pet.name> is <num.teen> years old"
        "|<pet.name> weighs about <num.tens> pounds|the vet charged us <price.small>"
        "|we used to have a_ <animal> and a_ <animal>|she sleeps on my <body>"
        "|i'm allergic to cats|he chased a_ <animal> into the garage|what's your dog's name"
        "|i've got <num.small> cats and a_ <animal>",
    ),
    "school": Topic(
        thing="school|class|teacher|college|exam|student|classroom|homework|degree|library|course"
        "|education|lesson|campus|principal|grade",
        things="students|teachers|classes|grades|schools|tests|books|exams|courses|subjects|papers"
        "|colleges|professors",
        quality="public|private|hard|easy|smart|strict|excellent|advanced|basic|crowded|patient",
        verbs="study studies studied studying studied : <subject>|<subject> in college"
        "|for the exam /"
        "teach teaches taught teaching taught : <subject>|<subject> at a college|<grade> grade /"
        "learn learns learned learning learned : <subject>|to read|a language /"
        "take takes took taking taken : a_ <subject> class|the exam|<num.small> courses /"
        "fail fails failed failing failed : <subject>|the test|the class /"
        "graduate graduates graduated graduating graduated : in <year>|from college in <year>",
        say="i majored in <subject>|she teaches <grade> grade in <city>|there are <num.tens> kids"
        " in her class|he's in the <grade> grade|i graduated from high school in <year>"
        "|tuition is about <price> a year|my worst subject was <subject>"
        "|i'm taking <subject> and <subject> this semester|his teacher is named <person>"
        "|school starts at <clock>",
    ),
    "house": Topic(
        thing="house|yard|garden|roof|fence|bedroom|basement|bathroom|garage|neighborhood|floor"
        "|kitchen|apartment|door|lawn|couch|carpet|closet",
        things="windows|walls|flowers|trees|plants|rooms|bedrooms|neighbors|weeds|tools|roses"
        "|floors|curtains|cabinets|bricks",
        quality="big|small|wooden|brick|cozy|modern|empty|clean|dirty|broken|upstairs|leaky|tiny",
        verbs="paint paints painted painting painted : the <room>|the <room> <color>|the fence /"
        "build builds built building built : a deck|a fence|a house in <city>|shelves /"
        "clean cleans cleaned cleaning cleaned : the <room>|the windows|the carpet /"
        "plant plants planted planting planted : tomatoes|roses|flowers|<num.small> trees /"
        "mow mows mowed mowing mowed : the lawn|the grass every <day> /"
        "rent rents rented renting rented : an apartment|a house in <city>|out the <room>",
        say="we painted the <room> <color>|it has <num.small> bedrooms and <num.small> bathrooms"
        "|the house was built in <year>|we paid <price> for it|the roof leaks in the <room>"
        "|i planted <num.small> rows of beans|our neighbor <person> has a_ <color> fence"
        "|the rent is <price.small> a month|i put new carpet in the <room>"
        "|we've lived here since <year>|do you want it <color> or <color>",
    ),
    "health": Topic(
        thing="doctor|hospital|nurse|gym|cold|fever|headache|surgery|diet|dentist|medicine|pill"
        "|cough|exercise|appointment|patient|bandage",
        things="doctors|vitamins|pills|weights|glasses|shots|allergies|muscles|bones|teeth|nurses"
        "|cigarettes",
        quality="sick|healthy|sore|tired|dizzy|weak|strong|thin|heavy|painful|allergic|overweight",
        verbs="break breaks broke breaking broken : my <body>|his <body>|her <body> /"
        "hurt hurts hurt hurting hurt : my <body>|my <body> and my <body>|his <body> /"
        "exercise exercises exercised exercising exercised : every <day>|at the gym /"
        "lift lifts lifted lifting lifted : weights|<num.tens> pounds /"
        "lose loses lost losing lost : <num.teen> pounds|weight|my voice /"
        "take takes took taking taken : vitamins|<num.small> pills a day|the medicine",
        say="i broke my <body> in <month>|the doctor says i need <num.small> weeks of rest"
        "|my <body> hurts when i walk|i walk <num.small> miles a day|she was in the hospital for"
        " <num.small> weeks|i quit smoking in <year>|they charged <price> for the surgery"
        "|i have an appointment on <day> at <clock>|he lost <num.tens> pounds"
        "|my <kin.word> has a bad <body>",
    ),
    "money": Topic(
        thing="bank|budget|loan|mortgage|check|credit card|tax|store|bill|account|sale|price|coupon"
        "|payment|dollar|mall",
        things="taxes|bills|dollars|prices|stocks|bonds|savings|clothes|shoes|stores|coupons|cards"
        "|pennies|debts",
        quality="rich|poor|broke|expensive|cheap|careful|greedy|free|fair|extra|outrageous",
        verbs="pay pays paid paying paid : the bills|<price> for it|<price.small> a month|cash /"
        "save saves saved saving saved : money|<price.small> a week|for a house|for college /"
        "spend spends spent spending spent : <price>|too much on <clothes>|it all /"
        "owe owes owed owing owed : <price>|<person> <price.small>|the bank money /"
        "borrow borrows borrowed borrowing borrowed : <price>|money from <kin> /"
        "buy buys bought buying bought : <clothes>|a_ <color> <clothes.one>|stocks",
        say="i paid <price.small> for a_ <color> <clothes.one>|they wanted <price> for it"
        "|it was <price.small> and i gave him <price.small>|we owe <price> on the house"
        "|taxes went up <num.teen> percent|the interest is about <num.teen> percent"
        "|i save <price.small> a month|i bought <clothes> and <clothes> on sale"
        "|everything costs twice what it did in <year>|the store closes at <clock>",
    ),
    "news": Topic(
        thing="government|president|election|war|law|police|crime|newspaper|country|army|jury|judge"
        "|trial|vote|congress|prison|gun|city",
        things="politicians|taxes|laws|guns|drugs|prisons|criminals|soldiers|lawyers|voters|judges"
        "|newspapers|problems|countries|elections",
        quality="political|guilty|innocent|liberal|conservative|corrupt|dangerous|legal|illegal"
        "|violent|honest|powerful|safe",
        verbs="vote votes voted voting voted : for <person>|against it|in the election /"
        "read reads read reading read : the newspaper|about <country>|the article /"
        "support supports supported supporting supported : the president|the law|the army /"
        "change changes changed changing changed : the law|the government|the system /"
        "arrest arrests arrested arresting arrested : a_ <job> in <city>|<num.small> people /"
        "blame blames blamed blaming blamed : the government|the police|congress",
        say="i read about it in the newspaper on <day>|the jury said he was guilty"
        "|they sent <num.big> soldiers to <country>|crime went up <num.teen> percent in <city>"
        "|i voted for <person> in <year>|a_ <job> in <city> was arrested for it"
        "|they ought to change that law|he got <num.tens> years in prison"
        "|what do they think about it in <country>|there was an election in <country>",
    ),
    "computers": Topic(
        thing="computer|keyboard|machine|printer|telephone|program|screen|system|calculator|camera"
        "|television|file|disk|message|battery|microwave",
        things="computers|games|machines|programs|phones|messages|buttons|wires|files|gadgets"
        "|printers|disks|cameras",
        quality="fast|slow|useful|complicated|portable|electronic|modern|simple|cheap|handy|digital",
        verbs="use uses used using used : a computer|the phone|it at work|the microwave /"
        "fix fixes fixed fixing fixed : the computer|the printer|the television /"
        "type types typed typing typed : a letter|<num.tens> words a minute|the report /"
        "write writes wrote writing written : programs|a letter|a program for <person> /"
        "answer answers answered answering answered : the phone|the message|<person> /"
        "play plays played playing played : games|games on the computer",
        say="i bought a computer in <year> for <price>|it takes <num.tens> minutes to print"
        "|my number is <digit> <digit> <digit> , <digit> <digit> <digit> <digit>"
        "|we have <num.small> computers at work|my <kin.word> knows more about it than i do"
        "|call me at <clock> on <day>|the printer broke on <day>|i type <num.tens> words a minute"
        "|i left a message for <person> at <clock>|the kids play games for <num.small> hours",
    ),
}
