from hadpsgd.setup.need import examples_mb


rule features:
    input:
        data=f"{OUT}/corpus/data/{{set}}",
    output:
        directory(f"{OUT}/feats/{{stream}}/{{set}}"),
    log:
        f"{OUT}/logs/features/{{stream}}.{{set}}.log",
    benchmark:
        f"{OUT}/benchmarks/features.{{stream}}.{{set}}.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    threads: shared_threads(len(SETS))
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=NEEDS.minutes("features.{stream}.{set}", 120),
    params:
        config=config_file,
        sources=lambda wildcards: DIGESTS(f"features.{wildcards.stream}", wildcards.set),
        depends=lambda wildcards: DEPENDS[f"features.{wildcards.stream}"],
    shell:
        "hadpsgd features --config {params.config:q} --stream {wildcards.stream:q}"
        " --data {input.data:q} --out {output:q} --jobs {threads} 2> {log:q}"


# What training examples have of train_perturbed: its data first, then its features.
COPIES = [
    path
    for name in PERTURBED
    for path in (
        f"{OUT}/corpus/data/{name}",
        *(f"{OUT}/feats/{stream}/{name}" for stream in CONFIG.features.input),
    )
]


rule egs:
    input:
        data=f"{OUT}/corpus/data/{{set}}",
        streams=expand(
            f"{OUT}/feats/{{stream}}/{{{{set}}}}", stream=CONFIG.features.input
        ),
        ali=f"{label_folder(CONFIG, OUT)}/{{set}}",
        perturbed=lambda wildcards: COPIES if wildcards.set == "train" else [],
    output:
        directory(f"{OUT}/egs/{{set}}"),
    log:
        f"{OUT}/logs/egs.{{set}}.log",
    benchmark:
        f"{OUT}/benchmarks/egs.{{set}}.tsv"
    priority: 2  # training waits for it
    conda:
        "../../envs/hadpsgd.yaml"
    threads: THREADS
    resources:
        mem_mb=lambda wildcards, threads, attempt: examples_mb(CONFIG, threads)
        * attempt,
        runtime=NEEDS.minutes("egs.{set}", 120),
    params:
        config=config_file,
        depends=lambda wildcards: DEPENDS[f"egs.{wildcards.set}"],
        streams=lambda wildcards, input: Path(input.streams[0]).parents[1],
        held_out=lambda wildcards: "" if wildcards.set == "train" else "--held-out",
        perturbed=lambda wildcards, input: (
            f"--perturbed {quote(str(input.perturbed[0]))}" if input.perturbed else ""
        ),
        # a function of `output`: what was made before there were stages is not made again
        stage=lambda wildcards, output: "",
    shell:
        "hadpsgd egs --config {params.config:q} --data {input.data:q} --streams {params.streams:q}"
        " --ali {input.ali:q} --out {output:q} {params.held_out} {params.perturbed} {params.stage}"
        " --jobs {threads} 2> {log:q}"


# Longer ones for sequence training, and what it needs besides.
for stage in CONFIG.training.stages:

    use rule egs as egs_of_stage with:
        output:
            directory(f"{OUT}/sequence/{stage.criterion}/{{set}}"),
        log:
            f"{OUT}/logs/sequence.{stage.criterion}.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/sequence.{stage.criterion}.{{set}}.tsv"
        params:
            config=config_file,
            depends=lambda wildcards: (
                DEPENDS[f"egs.{stage.criterion}.{wildcards.set}"]
            ),
            streams=lambda wildcards, input: Path(input.streams[0]).parents[1],
            held_out=lambda wildcards: (
                "" if wildcards.set == "train" else "--held-out"
            ),
            perturbed=lambda wildcards, input: (
                f"--perturbed {quote(str(input.perturbed[0]))}"
                if input.perturbed
                else ""
            ),
            stage=lambda wildcards, output: f"--stage {quote(stage.criterion)}",
