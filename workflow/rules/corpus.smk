# A corpus is made part by part, so that a new or changed test set leaves all others as they are.
LEXICON = f"{OUT}/corpus/dict"
# Sets and texts need it only where their words are folded to its case.
FOLDED_BY = LEXICON if CONFIG.corpus.folds_words else []
CHECKED = f"{OUT}/corpus/checked"
MADE = CONFIG.corpus.kind in ("builtin", "an4")  # audio, too


rule dictionary:
    output:
        directory(LEXICON),
    log:
        f"{OUT}/logs/dictionary.log",
    benchmark:
        f"{OUT}/benchmarks/dictionary.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("dictionary"),
        depends=DEPENDS["dictionary"],
        out=subpath(output[0], parent=True),
    shell:
        "hadpsgd corpus --config {params.config:q} --only dictionary --out {params.out:q}"
        " --jobs {threads} 2> {log:q}"


rule corpus:
    input:
        dict=FOLDED_BY,
    output:
        data=directory(f"{OUT}/corpus/data/{{set}}"),
        audio=directory(f"{OUT}/corpus/audio/{{set}}") if MADE else [],
    log:
        f"{OUT}/logs/corpus.{{set}}.log",
    benchmark:
        f"{OUT}/benchmarks/corpus.{{set}}.tsv"
    wildcard_constraints:
        set="|".join(SETS),
    # All training waits for all sets. Later they would not find all cores free for minutes, nor
    # would trainings of many processes after them.
    priority: 3
    conda:
        "../../envs/hadpsgd.yaml"
    threads: THREADS
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=NEEDS.minutes("corpus.{set}", 60),
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("corpus", wildcards.set),
        depends=lambda wildcards: DEPENDS[f"corpus.{wildcards.set}"],
        out=subpath(output.data, ancestor=2),
    shell:
        "hadpsgd corpus --config {params.config:q} --only data --set {wildcards.set:q}"
        " --out {params.out:q} --jobs {threads} 2> {log:q}"


# Sets are held against the dictionary of now, whenever they were made. Training, tuning and
# scoring wait for that.
rule words:
    input:
        data=f"{OUT}/corpus/data/{{set}}",
        dict=LEXICON,
    output:
        f"{OUT}/corpus/words/{{set}}.json",
    log:
        f"{OUT}/logs/words.{{set}}.log",
    benchmark:
        f"{OUT}/benchmarks/words.{{set}}.tsv"
    wildcard_constraints:
        set="|".join(SETS),
    priority: 3  # a fault is told before anything is trained
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=NEEDS.minutes("words.{set}", 30),
    params:
        config=config_file,
        out=subpath(output[0], ancestor=2),
    shell:
        "hadpsgd corpus --config {params.config:q} --only words --set {wildcards.set:q}"
        " --out {params.out:q} --jobs {threads} 2> {log:q}"


rule lm_text:
    input:
        dict=FOLDED_BY,
    output:
        f"{OUT}/corpus/lm/train.txt",
    log:
        f"{OUT}/logs/lm_text.log",
    benchmark:
        f"{OUT}/benchmarks/lm_text.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("lm_text"),
        depends=DEPENDS["lm_text"],
        out=subpath(output[0], ancestor=2),
    shell:
        "hadpsgd corpus --config {params.config:q} --only text --out {params.out:q}"
        " --jobs {threads} 2> {log:q}"


rule dev_text:
    input:
        dict=FOLDED_BY,
        data=f"{OUT}/corpus/data/dev" if CONFIG.corpus.speaks_first else [],
    output:
        f"{OUT}/corpus/lm/dev.txt",
    log:
        f"{OUT}/logs/dev_text.log",
    benchmark:
        f"{OUT}/benchmarks/dev_text.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        config=config_file,
        depends=DEPENDS["dev_text"],
        sources=lambda wildcards: DIGESTS("dev_text"),
        out=subpath(output[0], ancestor=2),
    shell:
        "hadpsgd corpus --config {params.config:q} --only dev-text --out {params.out:q}"
        " --jobs {threads} 2> {log:q}"


# A fault of any set or text ends in an error before anything is trained. Training has it as
# ancient(): a set that is added later trains nothing.
rule checked:
    input:
        words=expand(f"{OUT}/corpus/words/{{set}}.json", set=SETS),
        texts=[rules.lm_text.output, rules.dev_text.output],
    output:
        touch(CHECKED),
    localrule: True


if PERTURBED:

    rule perturb:
        input:
            data=f"{OUT}/corpus/data/train",
        output:
            data=directory(f"{OUT}/corpus/data/{PERTURBED[0]}"),
            audio=directory(f"{OUT}/corpus/audio/{PERTURBED[0]}"),
        log:
            f"{OUT}/logs/perturb.log",
        benchmark:
            f"{OUT}/benchmarks/perturb.tsv"
        priority: 3
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=NEEDS.minutes("perturb", 120),
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("perturb"),
            depends=DEPENDS["perturb"],
        shell:
            "hadpsgd perturb --config {params.config:q} --data {input.data:q} --out {output.data:q}"
            " --jobs {threads} 2> {log:q}"


rule lang:
    input:
        dict=f"{OUT}/corpus/dict",
    output:
        directory(f"{OUT}/lang"),
    log:
        f"{OUT}/logs/lang.log",
    benchmark:
        f"{OUT}/benchmarks/lang.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("lang"),
        depends=DEPENDS["lang"],
    shell:
        "hadpsgd lang --config {params.config:q} --dict {input.dict:q} --out {output:q} 2> {log:q}"
