# Labels by a trained network (realign.passes): each pass trains one on the labels before it.
# Its folder has the run's name without the hash: another number of passes keeps the first ones.
if CONFIG.realign.passes:

    use rule egs as egs_to_realign with:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            streams=expand(
                f"{OUT}/feats/{{stream}}/{{{{set}}}}", stream=CONFIG.features.input
            ),
            ali=lambda wildcards: (
                f"{label_folder(CONFIG, OUT, int(wildcards.round) - 1)}/{wildcards.set}"
            ),
            perturbed=lambda wildcards: COPIES if wildcards.set == "train" else [],
        output:
            temp(directory(f"{OUT}/realign/{{round}}/egs/{{set}}")),
        log:
            f"{OUT}/logs/realign.{{round}}/egs.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/realign_egs.{{round}}.{{set}}.tsv"

    use rule train as train_to_realign with:
        input:
            egs=f"{OUT}/realign/{{round}}/egs/train",
            dev=f"{OUT}/realign/{{round}}/egs/dev",
            checked=ancient(CHECKED),
        output:
            model=f"{OUT}/realign/{{round}}/runs/{{run}}/final.pt",
            summary=f"{OUT}/realign/{{round}}/runs/{{run}}/summary.json",
        log:
            f"{OUT}/logs/realign.{{round}}/train.{{run}}.log",
        benchmark:
            f"{OUT}/benchmarks/realign_train.{{round}}.{{run}}.tsv"
        wildcard_constraints:
            run=CONFIG.realigner,
        params:
            config=config_file,
            depends=lambda wildcards: run_fingerprint(CONFIG, wildcards.run),
            out=subpath(output.model, parent=True),
            logs=lambda wildcards: (
                f"{OUT}/logs/realign.{wildcards.round}/train.{wildcards.run}"
            ),
            initial=lambda wildcards, input: "",

    rule realign:
        input:
            model=f"{OUT}/realign/{{round}}/runs/{CONFIG.realigner}/final.pt",
            data=f"{OUT}/corpus/data/{{set}}",
            streams=expand(
                f"{OUT}/feats/{{stream}}/{{{{set}}}}", stream=CONFIG.features.input
            ),
            lang=f"{OUT}/lang",
            ali=lambda wildcards: (
                f"{label_folder(CONFIG, OUT, int(wildcards.round) - 1)}/{wildcards.set}"
            ),
        output:
            directory(f"{OUT}/realign/{{round}}/ali/{{set}}"),
        log:
            f"{OUT}/logs/realign.{{round}}/{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/realign.{{round}}.{{set}}.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(2)
        resources:
            gres=one_gpu(CONFIG),
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["realign"],
            streams=lambda wildcards, input: Path(input.streams[0]).parents[1],
        shell:
            "hadpsgd realign --config {params.config:q} --model {input.model:q} --lang {input.lang:q}"
            " --ali {input.ali:q} --data {input.data:q} --streams {params.streams:q} --out {output:q}"
            " --jobs {threads} 2> {log:q}"
