rule corpus:
    output:
        data=[directory(f"{OUT}/corpus/data/{name}") for name in SETS],
        dict=directory(f"{OUT}/corpus/dict"),
        lm=f"{OUT}/corpus/lm/train.txt",
        lm_dev=f"{OUT}/corpus/lm/dev.txt",
    log:
        f"{OUT}/logs/corpus.log",
    benchmark:
        f"{OUT}/benchmarks/corpus.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    threads: THREADS
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        config=config_file,
        depends=DEPENDS["corpus"],
        out=subpath(output.lm, ancestor=2),
    shell:
        "hadpsgd corpus --config {params.config:q} --out {params.out:q} --jobs {threads} 2> {log:q}"


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
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 120 * attempt,
        params:
            config=config_file,
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
        depends=DEPENDS["lang"],
    shell:
        "hadpsgd lang --config {params.config:q} --dict {input.dict:q} --out {output:q} 2> {log:q}"
