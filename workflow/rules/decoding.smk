rule decode:
    input:
        model=models_of,
        graph=f"{OUT}/graph",
        data=f"{OUT}/corpus/data/{{set}}",
        streams=expand(
            f"{OUT}/feats/{{stream}}/{{{{set}}}}", stream=CONFIG.features.input
        ),
        gmm=gmm_of("{set}"),
    output:
        directory(f"{OUT}/decode/{{run}}/{{set}}"),
    log:
        f"{OUT}/logs/decode/{{run}}.{{set}}.log",
    benchmark:
        f"{OUT}/benchmarks/decode.{{run}}.{{set}}.tsv"
    wildcard_constraints:
        run="|".join([*RUNS, *TOGETHER]),
    priority: 0.5  # after trainings, before the analysis of errors
    conda:
        "../../envs/hadpsgd.yaml"
    threads: shared_threads(max(1, len(ANALYSED)) * (1 + len(CONFIG.tests)))
    resources:
        gres=one_gpu(CONFIG),
        mem_mb=lambda wildcards, attempt: 8000 * attempt + RESCORING_MB,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        config=config_file,
        depends=DEPENDS["decode"],
        streams=lambda wildcards, input: Path(input.streams[0]).parents[1],
        gmm=gmm_option,
    shell:
        "hadpsgd decode --config {params.config:q} --model {input.model:q} --graph {input.graph:q}"
        " --data {input.data:q} --streams {params.streams:q} {params.gmm} --out {output:q} --jobs {threads} 2> {log:q}"


# The GMM-HMM beside the runs, on features of its own; adapted ones where it is trained on them.
if CONFIG.gmm_row:

    rule decode_gmm:
        input:
            model=f"{OUT}/ali/train",
            graph=f"{OUT}/graph",
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            trans=(
                f"{OUT}/fmllr/{{set}}/trans" if CONFIG.alignment.kind == "sat" else []
            ),
        output:
            directory(f"{OUT}/decode/{CONFIG.gmm_row}/{{set}}"),
        log:
            f"{OUT}/logs/decode/{CONFIG.gmm_row}.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/decode.{CONFIG.gmm_row}.{{set}}.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(1 + len(CONFIG.tests))
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt + RESCORING_MB,
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["decode_gmm"],
            trans=lambda wildcards, input: (
                f"--trans {quote(str(input.trans))}" if input.trans else ""
            ),
        shell:
            "hadpsgd decode-gmm --config {params.config:q} --model {input.model:q} --graph {input.graph:q}"
            " --data {input.data:q} --feats {input.feats:q} {params.trans} --out {output:q}"
            " --jobs {threads} 2> {log:q}"


if CONFIG.lm.neural:

    rule neural_lists:
        input:
            decode=f"{OUT}/decode/{{run}}/{{set}}",
            model=rules.neural_lm.output.model,
            arpa=rules.lm.output.arpa,
        output:
            lists_of("{set}"),
        log:
            f"{OUT}/logs/lists/{{run}}.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/lists.{{run}}.{{set}}.tsv"
        wildcard_constraints:
            run="|".join([*RUNS, *BESIDE]),
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(max(1, len(ANALYSED)) * (1 + len(CONFIG.tests)))
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt + held_mb(LM_SOURCES),
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["neural-lists"],
        shell:
            "hadpsgd neural-lists --config {params.config:q} --decode {input.decode:q}"
            " --model {input.model:q} --arpa {input.arpa:q} --out {output:q} --jobs {threads} 2> {log:q}"


rule tune:
    input:
        lists=chosen_with(lists_of("dev")) if CONFIG.lm.neural else [],
        decode=chosen_with(f"{OUT}/decode/{{run}}/dev"),
        words=f"{OUT}/corpus/words/dev.json",
        data=f"{OUT}/corpus/data/dev",
        acronyms=CONFIG.scoring.acronym_map or [],
    output:
        f"{OUT}/score/{{run}}/tuned.json",
    log:
        f"{OUT}/logs/tune.{{run}}.log",
    benchmark:
        f"{OUT}/benchmarks/tune.{{run}}.tsv"
    wildcard_constraints:
        run="|".join([*RUNS, *BESIDE]),
    priority: FIRST
    group:
        "scores"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("scoring"),
        depends=DEPENDS["tune"],
        lists=lists_option,
    shell:
        "hadpsgd tune --config {params.config:q} --decode {input.decode:q} --data {input.data:q}"
        " {params.lists} --out {output:q} 2> {log:q}"


rule score:
    input:
        decode=f"{OUT}/decode/{{run}}/{{set}}",
        words=f"{OUT}/corpus/words/{{set}}.json",
        data=f"{OUT}/corpus/data/{{set}}",
        tuned=f"{OUT}/score/{{run}}/tuned.json",
        acronyms=CONFIG.scoring.acronym_map or [],
        lists=lists_of("{set}"),
    output:
        directory(f"{OUT}/score/{{run}}/{{set}}"),
    log:
        f"{OUT}/logs/score/{{run}}.{{set}}.log",
    benchmark:
        f"{OUT}/benchmarks/score.{{run}}.{{set}}.tsv"
    wildcard_constraints:
        run="|".join([*RUNS, *BESIDE]),
    priority: FIRST
    group:
        "scores"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS("scoring"),
        depends=DEPENDS["score"],
        lists=lists_option,
    shell:
        "hadpsgd score --config {params.config:q} --decode {input.decode:q} --data {input.data:q}"
        " --tuned {input.tuned:q} {params.lists} --out {output:q} 2> {log:q}"
