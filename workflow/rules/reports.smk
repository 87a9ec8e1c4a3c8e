# Results as they come: tables do not wait for the pages of errors, nor a run's for the others.
# `--unfinished` without any: all inputs are made, whatever the record of jobs says so far.
rule report:
    input:
        score=expand(
            f"{OUT}/score/{{run}}/{{set}}",
            run=[*DECODED, *BESIDE],
            set=["dev", *CONFIG.tests],
        ),
        summary=expand(f"{OUT}/runs/{{run}}/summary.json", run=RUNS),
        tracked=expand(f"{OUT}/tracked/{{run}}.scores.json", run=BESIDE),
    output:
        wer=report(f"{OUT}/wer.md", caption="../report/wer.rst", category="Results"),
        page=report(
            f"{OUT}/report.html", caption="../report/report.rst", category="Results"
        ),
        curves=report(
            f"{OUT}/curves.png", caption="../report/curves.rst", category="Training"
        ),
        seconds=report(
            f"{OUT}/seconds.png", caption="../report/seconds.rst", category="Training"
        ),
        rate=report(
            f"{OUT}/learning_rate.png",
            caption="../report/learning_rate.rst",
            category="Training",
        ),
        stages=report(
            f"{OUT}/stages.md", caption="../report/stages.rst", category="Resources"
        ),
        significance=f"{OUT}/significance.json",
    log:
        f"{OUT}/logs/report.log",
    priority: FIRST
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        config=config_file,
        rows=ROWS,
    shell:
        "hadpsgd report --config {params.config:q} --out {output.wer:q} --unfinished 2> {log:q}"


rule error_analysis:
    input:
        model=models_of,
        graph=f"{OUT}/graph",
        data=expand(f"{OUT}/corpus/data/{{set}}", set=CONFIG.tests),
        streams=expand(
            f"{OUT}/feats/{{stream}}/{{set}}",
            stream=CONFIG.features.input,
            set=CONFIG.tests,
        ),
        gmm=gmm_of(*CONFIG.tests),
        decode=expand(f"{OUT}/decode/{{{{run}}}}/{{set}}", set=CONFIG.tests),
        tuned=f"{OUT}/score/{{run}}/tuned.json",
        score=expand(f"{OUT}/score/{{{{run}}}}/{{set}}", set=CONFIG.tests),
    output:
        directory(f"{OUT}/errors/{{run}}"),
    log:
        f"{OUT}/logs/errors.{{run}}.log",
    benchmark:
        f"{OUT}/benchmarks/errors.{{run}}.tsv"
    wildcard_constraints:
        run="|".join([*RUNS, *TOGETHER]),
    conda:
        "../../envs/hadpsgd.yaml"
    threads: shared_threads(max(1, len(ANALYSED)))
    resources:
        gres=one_gpu(CONFIG),
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        config=config_file,
        data=lambda wildcards, input: Path(input.data[0]).parent,
        streams=lambda wildcards, input: Path(input.streams[0]).parents[1],
        decode=lambda wildcards, input: Path(input.decode[0]).parent,
        score=subpath(input.tuned, parent=True),
        gmm=gmm_option,
    shell:
        "hadpsgd error-analysis --config {params.config:q} --model {input.model:q}"
        " --graph {input.graph:q} --data {params.data:q} --streams {params.streams:q}"
        " --decode {params.decode:q} --score {params.score:q} {params.gmm} --out {output:q}"
        " --jobs {threads} 2> {log:q}"


# Every run's errors beside those of the first one.
rule compare_errors:
    input:
        data=expand(f"{OUT}/corpus/data/{{set}}", set=CONFIG.tests),
        first=expand(f"{OUT}/score/{{run}}/{{set}}", run=ANALYSED[:1], set=CONFIG.tests),
        score=expand(f"{OUT}/score/{{{{run}}}}/{{set}}", set=CONFIG.tests),
    output:
        f"{OUT}/compared/{{run}}/index.html",
    log:
        f"{OUT}/logs/compared.{{run}}.log",
    wildcard_constraints:
        run="|".join([*RUNS, *TOGETHER]),
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        config=config_file,
        data=lambda wildcards, input: Path(input.data[0]).parent,
        first=lambda wildcards, input: Path(input.first[0]).parent,
        score=lambda wildcards, input: Path(input.score[0]).parent,
    shell:
        "hadpsgd compare-errors --config {params.config:q} {params.first:q} {params.score:q}"
        " --data {params.data:q} --out {output:q} 2> {log:q}"


# The page of results again, with links to those of errors.
rule index:
    input:
        report=rules.report.output,
        errors=expand(f"{OUT}/errors/{{run}}", run=ANALYSED),
        compared=expand(f"{OUT}/compared/{{run}}/index.html", run=ANALYSED[1:]),
    output:
        f"{OUT}/index.html",
    log:
        f"{OUT}/logs/index.log",
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        config=config_file,
        rows=ROWS,
    shell:
        "hadpsgd report --config {params.config:q} --index {output:q} --unfinished 2> {log:q}"


# A run in MLflow: once it is trained, and with its scores and its model once all sets are scored.
rule track_training:
    input:
        summary=f"{OUT}/runs/{{run}}/summary.json",
        model=f"{OUT}/runs/{{run}}/final.pt",
    output:
        f"{OUT}/tracked/{{run}}.training.json",
    log:
        f"{OUT}/logs/track_training.{{run}}.log",
    # The run is there since its start. On few cores the next training of many processes comes
    # first: beside this one of a single process would be begun, and then there is no room for it.
    priority: 1.5
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        config=config_file,
    shell:
        "hadpsgd track --config {params.config:q} --run {wildcards.run:q} --out {output:q} 2> {log:q}"


use rule track_training as track_scores with:
    input:
        training=f"{OUT}/tracked/{{run}}.training.json",
        score=expand(f"{OUT}/score/{{{{run}}}}/{{set}}", set=["dev", *CONFIG.tests]),
    output:
        f"{OUT}/tracked/{{run}}.scores.json",
    log:
        f"{OUT}/logs/track_scores.{{run}}.log",
    priority: FIRST


# What is decoded beside the runs has no training: it is a run in MLflow once it is scored, before
# the tables, which name it.
use rule track_training as track_beside with:
    input:
        score=expand(f"{OUT}/score/{{{{run}}}}/{{set}}", set=["dev", *CONFIG.tests]),
    output:
        f"{OUT}/tracked/{{run}}.scores.json",
    log:
        f"{OUT}/logs/track_beside.{{run}}.log",
    wildcard_constraints:
        run="|".join(BESIDE) or "none",
    priority: FIRST


# The tables of all runs, with each.
rule track:
    input:
        report=rules.report.output,
        training=expand(f"{OUT}/tracked/{{run}}.training.json", run=RUNS),
        scores=expand(f"{OUT}/tracked/{{run}}.scores.json", run=DECODED),
    output:
        f"{OUT}/tracking.json",
    log:
        f"{OUT}/logs/track.log",
    priority: FIRST
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        config=config_file,
        rows=ROWS,
    shell:
        "hadpsgd track --config {params.config:q} --out {output:q} 2> {log:q}"
