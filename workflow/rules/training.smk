# Training, one job a run, over as many hosts as it wants. Checkpoints lie outside its outputs,
# where a failed rule keeps them.
rule train:
    input:
        egs=lambda wildcards: f"{OUT}/{examples_of(CONFIG, wildcards.run)}/train",
        dev=ancient(lambda wildcards: f"{OUT}/{examples_of(CONFIG, wildcards.run)}/dev"),
        initial=lambda wildcards: models_before(wildcards.run),
        checked=ancient(CHECKED),
    output:
        model=f"{OUT}/runs/{{run}}/final.pt",
        summary=f"{OUT}/runs/{{run}}/summary.json",
    log:
        f"{OUT}/logs/train.{{run}}.log",
    benchmark:
        f"{OUT}/benchmarks/train.{{run}}.tsv"
    # Those of many processes first: beside those of few there is room for the graph and for
    # decoding, and none beside the others.
    priority: asked(CONFIG, "cpus_per_task")
    conda:
        "../../envs/hadpsgd.yaml"
    threads: asked(CONFIG, "cpus_per_task")
    resources:
        mem_mb=asked(CONFIG, "mem_mb"),
        runtime=asked(CONFIG, "runtime"),
        nodes=asked(CONFIG, "nodes"),
        tasks=asked(CONFIG, "tasks"),
        mpi=asked(CONFIG, "mpi"),
        cpus_per_task=asked(CONFIG, "cpus_per_task"),
        gres=asked(CONFIG, "gres"),
        slurm_extra=asked(CONFIG, "slurm_extra"),
        tasks_per_gpu=asked(CONFIG, "tasks_per_gpu"),
    params:
        config=config_file,
        depends=lambda wildcards: run_fingerprint(CONFIG, wildcards.run),
        out=subpath(output.model, parent=True),
        logs=lambda wildcards: f"{OUT}/logs/train.{wildcards.run}",
        initial=lambda wildcards, input: (
            f"--initial {quote(input.initial[0])}" if input.initial else ""
        ),
    shell:
        "hadpsgd launch --config {params.config:q} --run-id {wildcards.run:q} --egs {input.egs:q}"
        " --dev-egs {input.dev:q} --out {params.out:q} --logs {params.logs:q} --wait"
        " {params.initial} --accept-divergence 2> {log:q}"
