# i-vectors: trained here, or imported from Kaldi (features.imports).
if CONFIG.features.imports.ivector:

    rule import_ivector:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
        output:
            directory(f"{OUT}/feats/ivector/{{set}}"),
        log:
            f"{OUT}/logs/features/ivector.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/import.ivector.{{set}}.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 120 * attempt,
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("import_ivector", wildcards.set),
            depends=DEPENDS["import_ivector"],
        shell:
            "hadpsgd import-features --config {params.config:q} --stream ivector"
            " --data {input.data:q} --out {output:q} --jobs {threads} 2> {log:q}"

else:

    rule ubm:
        input:
            data=f"{OUT}/corpus/data/train",
            feats=f"{OUT}/feats/mfcc/train",
            transform=(
                ancient(ivector_transform(CONFIG, OUT))
                if CONFIG.features.ivector.transform
                else ivector_transform(CONFIG, OUT)
            ),
        output:
            directory(f"{OUT}/ivector/ubm"),
        log:
            f"{OUT}/logs/ubm.log",
        benchmark:
            f"{OUT}/benchmarks/ubm.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=NEEDS.minutes("ubm", 240),
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("ubm"),
            depends=DEPENDS["ubm"],
            transform=lambda wildcards, input: (
                f"--transform {quote(str(input.transform))}" if input.transform else ""
            ),
        shell:
            "hadpsgd ubm --config {params.config:q} --data {input.data:q} --feats {input.feats:q}"
            " {params.transform} --out {output:q} --jobs {threads} 2> {log:q}"

    rule ivector_train:
        input:
            data=f"{OUT}/corpus/data/train",
            feats=f"{OUT}/feats/mfcc/train",
            ubm=f"{OUT}/ivector/ubm",
        output:
            directory(f"{OUT}/ivector/extractor"),
        log:
            f"{OUT}/logs/ivector_train.log",
        benchmark:
            f"{OUT}/benchmarks/ivector_train.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=NEEDS.minutes("ivector_train", 240),
        params:
            config=config_file,
            depends=DEPENDS["ivector_train"],
        shell:
            "hadpsgd ivector-train --config {params.config:q} --data {input.data:q}"
            " --feats {input.feats:q} --ubm {input.ubm:q} --out {output:q} --jobs {threads} 2> {log:q}"

    rule ivector_extract:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            extractor=f"{OUT}/ivector/extractor",
        output:
            directory(f"{OUT}/feats/ivector/{{set}}"),
        log:
            f"{OUT}/logs/features/ivector.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/ivector_extract.{{set}}.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(len(SETS))
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=NEEDS.minutes("features.ivector.{set}", 120),
        params:
            config=config_file,
            depends=DEPENDS["ivector_extract"],
        shell:
            "hadpsgd ivector-extract --config {params.config:q} --data {input.data:q}"
            " --feats {input.feats:q} --extractor {input.extractor:q} --out {output:q}"
            " --jobs {threads} 2> {log:q}"
