# Training, one job a run. Checkpoints lie outside its outputs, where a failed rule keeps them.
rule train:
    input:
        config=ancient(CONFIG_FILE),
        egs=f"{OUT}/egs/train",
        dev=f"{OUT}/egs/dev",
    output:
        model=f"{OUT}/runs/{{run}}/final.pt",
        summary=f"{OUT}/runs/{{run}}/summary.json",
    log:
        f"{OUT}/logs/train.{{run}}.log",
    benchmark:
        f"{OUT}/benchmarks/train.{{run}}.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    threads: lambda wildcards: run_of(CONFIG, wildcards.run).learners
    resources:
        mem_mb=lambda wildcards, attempt: 2000
        * attempt
        * run_of(CONFIG, wildcards.run).learners,
        runtime=lambda wildcards, attempt: 1440 * attempt,
    params:
        depends=lambda wildcards: run_fingerprint(CONFIG, wildcards.run),
        learners=lambda wildcards: run_of(CONFIG, wildcards.run).learners,
        out=subpath(output.model, parent=True),
    shell:
        "torchrun --standalone --nproc-per-node {params.learners} -m hadpsgd train"
        " --config {input.config} --run-id {wildcards.run} --egs {input.egs} --dev-egs {input.dev}"
        " --out {params.out} 2> {log}"
