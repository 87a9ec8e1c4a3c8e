from hadpsgd.lm.memory import held_mb, needed_mb

FIRST_PASS = f"{OUT}/lm/first_pass.arpa.gz" if CONFIG.lm.rescores else []
LM_SOURCES = [
    *CONFIG.lm.sources.values(),
    *([CONFIG.lm.arpa] if CONFIG.lm.arpa else []),
    *([CONFIG.lm.first_pass_arpa] if CONFIG.lm.first_pass_arpa else []),
]
# The full model beside the graph, where lattices are rescored with it.
RESCORING_MB = held_mb(LM_SOURCES) if CONFIG.lm.rescores else 0
# An open vocabulary: new words are spelled in pieces.
LM_LANG = f"{OUT}/pieces/lang" if CONFIG.lm.pieces else f"{OUT}/lang"
SPELLING = f"{OUT}/pieces/spelling.arpa.gz" if CONFIG.lm.pieces else []
GRAPH_LANG = (
    f"{OUT}/pronunciations/lang"
    if CONFIG.graph.pronunciation_probabilities
    else LM_LANG
)
LM_TEXT = f"{OUT}/pieces" if CONFIG.lm.pieces else f"{OUT}/corpus/lm"


if CONFIG.lm.pieces:

    rule pieces:
        input:
            text=f"{OUT}/corpus/lm/train.txt",
            dev=f"{OUT}/corpus/lm/dev.txt",
            dict=f"{OUT}/corpus/dict",
            lang=f"{OUT}/lang",
        output:
            model=f"{OUT}/pieces/pieces.model",
            spelling=f"{OUT}/pieces/spelling.arpa.gz",
            text=f"{OUT}/pieces/train.txt",
            dev=f"{OUT}/pieces/dev.txt",
            lang=directory(f"{OUT}/pieces/lang"),
        log:
            f"{OUT}/logs/pieces.log",
        benchmark:
            f"{OUT}/benchmarks/pieces.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 60 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["pieces"],
            out=subpath(output.model, parent=True),
        shell:
            "hadpsgd pieces --config {params.config:q} --text {input.text:q} --dev {input.dev:q}"
            " --dict {input.dict:q} --lang {input.lang:q} --out {params.out:q} 2> {log:q}"


rule lm:
    input:
        text=f"{LM_TEXT}/train.txt",
        dev=f"{LM_TEXT}/dev.txt",
        lang=LM_LANG,
        sources=ancient(LM_SOURCES),
    output:
        arpa=f"{OUT}/lm/full.arpa.gz",
        report=f"{OUT}/lm/report.json",
        first_pass=FIRST_PASS,
    log:
        f"{OUT}/logs/lm.log",
    benchmark:
        f"{OUT}/benchmarks/lm.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, input, attempt: attempt
        * needed_mb([input.text, *LM_SOURCES], CONFIG.lm.order),
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("lm"),
        depends=DEPENDS["lm"],
        out=subpath(output.report, parent=True),
    shell:
        "hadpsgd lm --config {params.config:q} --text {input.text:q} --dev {input.dev:q}"
        " --lang {input.lang:q} --memory {resources.mem_mb} --out {params.out:q} 2> {log:q}"


if CONFIG.graph.pronunciation_probabilities:

    rule pronunciations:
        input:
            ali=f"{OUT}/ali/train",
            lang=f"{OUT}/lang",
            data=f"{OUT}/corpus/data/train",
        output:
            dict=directory(f"{OUT}/pronunciations/dict"),
            lang=directory(GRAPH_LANG),
            report=f"{OUT}/pronunciations/report.json",
        log:
            f"{OUT}/logs/pronunciations.log",
        benchmark:
            f"{OUT}/benchmarks/pronunciations.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 60 * attempt,
        params:
            depends=DEPENDS["pronunciations"],
            out=subpath(output.report, parent=True),
        shell:
            "hadpsgd pronunciations --ali {input.ali:q} --lang {input.lang:q} --data {input.data:q}"
            " --out {params.out:q} 2> {log:q}"


if CONFIG.lm.neural:

    rule neural_lm:
        input:
            text=f"{LM_TEXT}/train.txt",
            dev=f"{LM_TEXT}/dev.txt",
            lang=LM_LANG,
            arpa=rules.lm.output.arpa,
            sources=ancient([*CONFIG.lm.sources.values()]),
        output:
            model=f"{OUT}/lm/neural/model.pt",
            meta=f"{OUT}/lm/neural/meta.json",
        log:
            f"{OUT}/logs/neural_lm.log",
        benchmark:
            f"{OUT}/benchmarks/neural_lm.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        threads: CONFIG.lm.neural.learners * CONFIG.lm.neural.threads
        resources:
            gres=neural_gpus(CONFIG),
            mem_mb=lambda wildcards, attempt: 4000
            * attempt
            * CONFIG.lm.neural.learners
            + held_mb(LM_SOURCES),
            runtime=lambda wildcards, attempt: 1440 * attempt,
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("lm"),
            depends=DEPENDS["neural-lm"],
            launch=(
                f"hadpsgd launch --learners {CONFIG.lm.neural.learners} -- "
                if CONFIG.lm.neural.learners > 1
                else ""
            ),
            out=subpath(output.model, parent=True),
        shell:
            "{params.launch}hadpsgd neural-lm --config {params.config:q} --text {input.text:q}"
            " --dev {input.dev:q} --lang {input.lang:q} --arpa {input.arpa:q} --out {params.out:q}"
            " 2> {log:q}"


rule graph:
    input:
        lang=GRAPH_LANG,
        ali=f"{OUT}/ali/train",
        arpa=rules.lm.output.arpa,
        first_pass=FIRST_PASS,
        spelling=SPELLING,
    output:
        directory(f"{OUT}/graph"),
    log:
        f"{OUT}/logs/graph.log",
    benchmark:
        f"{OUT}/benchmarks/graph.tsv"
    priority: 1  # all decoding waits for it
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt + RESCORING_MB,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        config=config_file,
        depends=DEPENDS["graph"],
        first_pass=lambda wildcards, input: (
            f"--first-pass {quote(str(input.first_pass))}" if input.first_pass else ""
        ),
        spelling=lambda wildcards, input: (
            f"--spelling {quote(str(input.spelling))}" if input.spelling else ""
        ),
    shell:
        "hadpsgd graph --config {params.config:q} --lang {input.lang:q} --ali {input.ali:q}"
        " --arpa {input.arpa:q} {params.first_pass} {params.spelling} --out {output:q} 2> {log:q}"
