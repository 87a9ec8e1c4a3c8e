# Frame labels of train and dev: from our own GMM-HMM (monophones, triphones, LDA+MLLT, SAT; the
# last stage of the config labels), or imported from Kaldi.
if CONFIG.alignment.kind == "kaldi":

    rule import_alignment:
        input:
            feats=f"{OUT}/feats/logmel/{{set}}",
            lang=f"{OUT}/lang",
            model=lambda wildcards: [
                ancient(f"{folder}/final.mdl")
                for folder in CONFIG.alignment.folders(wildcards.set)
            ],
        output:
            directory(f"{OUT}/ali/{{set}}"),
        log:
            f"{OUT}/logs/import_alignment.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/import_alignment.{{set}}.tsv"
        wildcard_constraints:
            set="train" if CONFIG.alignment.align_dev else "train|dev",
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 60 * attempt,
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("import_alignment", wildcards.set),
            depends=DEPENDS["import_alignment"],
        shell:
            "hadpsgd import-alignment --config {params.config:q} --feats {input.feats:q}"
            " --lang {input.lang:q} --out {output:q} 2> {log:q}"


if CONFIG.alignment.kind != "kaldi" or CONFIG.alignment.align_dev:

    rule align:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            lang=f"{OUT}/lang",
            model=f"{OUT}/ali/train",
        output:
            directory(f"{OUT}/ali/{{set}}"),
        log:
            f"{OUT}/logs/align.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/align.{{set}}.tsv"
        wildcard_constraints:
            set="dev",
        priority: 2  # training waits for it, and it is short
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 120 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["align"],
        shell:
            "hadpsgd align --config {params.config:q} --model {input.model:q} --data {input.data:q}"
            " --feats {input.feats:q} --lang {input.lang:q} --out {output:q} --jobs {threads} 2> {log:q}"


if "mono" in GMM:

    rule mono:
        input:
            data=f"{OUT}/corpus/data/train",
            feats=f"{OUT}/feats/mfcc/train",
            lang=f"{OUT}/lang",
            words=f"{OUT}/corpus/words/train.json",
        output:
            directory(GMM["mono"]),
        log:
            f"{OUT}/logs/mono.log",
        benchmark:
            f"{OUT}/benchmarks/mono.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=NEEDS.megabytes("mono", 4000),
            runtime=NEEDS.minutes("mono", 240),
        params:
            config=config_file,
            depends=DEPENDS["mono"],
        shell:
            "hadpsgd mono --config {params.config:q} --data {input.data:q} --feats {input.feats:q}"
            " --lang {input.lang:q} --out {output:q} --jobs {threads} 2> {log:q}"


if "tri" in GMM:

    rule tri:
        input:
            data=f"{OUT}/corpus/data/train",
            feats=f"{OUT}/feats/mfcc/train",
            lang=f"{OUT}/lang",
            ali=GMM["mono"],
        output:
            directory(GMM["tri"]),
        log:
            f"{OUT}/logs/tri.log",
        benchmark:
            f"{OUT}/benchmarks/tri.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=NEEDS.megabytes("tri", 4000),
            runtime=NEEDS.minutes("tri", 240),
        params:
            config=config_file,
            depends=DEPENDS["tri"],
        shell:
            "hadpsgd tri --config {params.config:q} --data {input.data:q} --feats {input.feats:q}"
            " --lang {input.lang:q} --ali {input.ali:q} --out {output:q} --jobs {threads} 2> {log:q}"


if "lda_mllt" in GMM:

    rule lda_mllt:
        input:
            data=f"{OUT}/corpus/data/train",
            feats=f"{OUT}/feats/mfcc/train",
            lang=f"{OUT}/lang",
            ali=GMM["tri"],
        output:
            directory(GMM["lda_mllt"]),
        log:
            f"{OUT}/logs/lda_mllt.log",
        benchmark:
            f"{OUT}/benchmarks/lda_mllt.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=NEEDS.megabytes("lda_mllt", 4000),
            runtime=NEEDS.minutes("lda_mllt", 240),
        params:
            config=config_file,
            depends=DEPENDS["lda_mllt"],
        shell:
            "hadpsgd lda-mllt --config {params.config:q} --data {input.data:q} --feats {input.feats:q}"
            " --lang {input.lang:q} --ali {input.ali:q} --out {output:q} --jobs {threads} 2> {log:q}"


if "sat" in GMM:

    rule sat:
        input:
            data=f"{OUT}/corpus/data/train",
            feats=f"{OUT}/feats/mfcc/train",
            lang=f"{OUT}/lang",
            ali=GMM["lda_mllt"],
        output:
            directory(GMM["sat"]),
        log:
            f"{OUT}/logs/sat.log",
        benchmark:
            f"{OUT}/benchmarks/sat.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=NEEDS.megabytes("sat", 4000),
            runtime=NEEDS.minutes("sat", 240),
        params:
            config=config_file,
            depends=DEPENDS["sat"],
        shell:
            "hadpsgd sat --config {params.config:q} --data {input.data:q} --feats {input.feats:q}"
            " --lang {input.lang:q} --ali {input.ali:q} --out {output:q} --jobs {threads} 2> {log:q}"
