# FMLLR features: with transforms of our own ladder, or imported from Kaldi (features.imports).
# Speakers of train are adapted by their transcripts, as the last stage left them; all others by
# what two decodings say (Kaldi's decode_fmllr.sh). Copies are heard as other voices: they
# are adapted by their transcripts, by our own model or that of the imported transforms.
FMLLR_MODEL = copies_adapted_by(CONFIG, OUT)

if FMLLR_MODEL:

    rule adapt_perturbed:
        input:
            data=f"{OUT}/corpus/data/{PERTURBED[0]}",
            feats=f"{OUT}/feats/mfcc/{PERTURBED[0]}",
            lang=f"{OUT}/lang",
            model=FMLLR_MODEL if GMM else ancient(FMLLR_MODEL),
        output:
            directory(f"{OUT}/fmllr/{PERTURBED[0]}"),
        log:
            f"{OUT}/logs/fmllr/adapt_perturbed.log",
        benchmark:
            f"{OUT}/benchmarks/adapt_perturbed.tsv"
        priority: 2
        conda:
            "../../envs/hadpsgd.yaml"
        threads: THREADS
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=NEEDS.minutes("fmllr.adapt_perturbed", 120),
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("fmllr_model", "train"),
            depends=DEPENDS["align"],
        shell:
            "hadpsgd align --config {params.config:q} --model {input.model:q} --data {input.data:q}"
            " --feats {input.feats:q} --lang {input.lang:q} --out {output:q} --jobs {threads} 2> {log:q}"

    rule fmllr_perturbed:
        input:
            data=f"{OUT}/corpus/data/{PERTURBED[0]}",
            feats=f"{OUT}/feats/mfcc/{PERTURBED[0]}",
            model=FMLLR_MODEL if GMM else ancient(FMLLR_MODEL),
            trans=f"{OUT}/fmllr/{PERTURBED[0]}",
        output:
            directory(f"{OUT}/feats/fmllr/{PERTURBED[0]}"),
        log:
            f"{OUT}/logs/fmllr/apply.{PERTURBED[0]}.log",
        benchmark:
            f"{OUT}/benchmarks/fmllr.{PERTURBED[0]}.tsv"
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(len(SETS))
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=NEEDS.minutes("fmllr.apply.train_perturbed", 120),
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("fmllr_model", "train"),
        shell:
            "hadpsgd fmllr-apply --config {params.config:q} --model {input.model:q} --trans {input.trans:q}"
            " --data {input.data:q} --feats {input.feats:q} --out {output:q} --jobs {threads} 2> {log:q}"


if CONFIG.features.imports.fmllr:

    # Kaldi's transforms; those of dev where it is aligned here, which estimates them.
    OWN_TRANS = (
        {"dev": f"{OUT}/ali/dev"}
        if getattr(CONFIG.alignment, "align_dev", False)
        and CONFIG.features.imports.fmllr.trans
        else {}
    )

    rule import_fmllr:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            trans=lambda wildcards: OWN_TRANS.get(wildcards.set, []),
        output:
            directory(f"{OUT}/feats/fmllr/{{set}}"),
        log:
            f"{OUT}/logs/features/fmllr.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/import.fmllr.{{set}}.tsv"
        wildcard_constraints:
            set="|".join(SETS if FMLLR_MODEL else [*SETS, *PERTURBED]),
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(len(SETS))
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 120 * attempt,
        params:
            config=config_file,
            sources=lambda wildcards: DIGESTS("import_fmllr", wildcards.set),
            depends=DEPENDS["import_fmllr"],
            trans=lambda wildcards, input: (
                f"--trans {quote(str(input.trans))}" if input.trans else ""
            ),
        shell:
            "hadpsgd import-features --config {params.config:q} --stream fmllr {params.trans}"
            " --data {input.data:q} --feats {input.feats:q} --out {output:q} --jobs {threads} 2> {log:q}"

elif CONFIG.estimates_fmllr:

    rule fmllr:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            model=f"{OUT}/ali/train",
            trans=lambda wildcards: (
                f"{OUT}/ali/train"
                if wildcards.set == "train"
                else f"{OUT}/fmllr/{wildcards.set}/trans"
            ),
        output:
            directory(f"{OUT}/feats/fmllr/{{set}}"),
        log:
            f"{OUT}/logs/fmllr/apply.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/fmllr.{{set}}.tsv"
        wildcard_constraints:
            set="|".join(SETS),
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(len(SETS))
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=NEEDS.minutes("fmllr.apply.{set}", 120),
        params:
            config=config_file,
        shell:
            "hadpsgd fmllr-apply --config {params.config:q} --model {input.model:q} --trans {input.trans:q}"
            " --data {input.data:q} --feats {input.feats:q} --out {output:q} --jobs {threads} 2> {log:q}"


# Of the GMM-HMM alone (decoding.gmm) too, with any features for the network.
if CONFIG.adapts_speakers:

    rule decode_first:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            model=f"{OUT}/ali/train",
            graph=f"{OUT}/graph",
        output:
            temp(directory(f"{OUT}/fmllr/{{set}}/first/lattices")),
        log:
            f"{OUT}/logs/fmllr/decode_first.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/decode_first.{{set}}.tsv"
        wildcard_constraints:
            set="|".join(name for name in SETS if name != "train"),
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(len(SETS))
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["decode_gmm"],
        shell:
            "hadpsgd decode-gmm --config {params.config:q} --model {input.model:q} --graph {input.graph:q}"
            " --data {input.data:q} --feats {input.feats:q} --out {output:q} --jobs {threads} 2> {log:q}"

    rule adapt_first:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            model=f"{OUT}/ali/train",
            lang=f"{OUT}/lang",
            lattices=f"{OUT}/fmllr/{{set}}/first/lattices",
        output:
            directory(f"{OUT}/fmllr/{{set}}/first/trans"),
        log:
            f"{OUT}/logs/fmllr/adapt_first.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/adapt_first.{{set}}.tsv"
        wildcard_constraints:
            set="|".join(name for name in SETS if name != "train"),
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 120 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["adapt"],
        shell:
            "hadpsgd adapt --config {params.config:q} --model {input.model:q} --lattices {input.lattices:q}"
            " --data {input.data:q} --feats {input.feats:q} --lang {input.lang:q} --out {output:q} 2> {log:q}"

    rule decode_adapted:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            model=f"{OUT}/ali/train",
            graph=f"{OUT}/graph",
            trans=f"{OUT}/fmllr/{{set}}/first/trans",
        output:
            temp(directory(f"{OUT}/fmllr/{{set}}/lattices")),
        log:
            f"{OUT}/logs/fmllr/decode_adapted.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/decode_adapted.{{set}}.tsv"
        wildcard_constraints:
            set="|".join(name for name in SETS if name != "train"),
        conda:
            "../../envs/hadpsgd.yaml"
        threads: shared_threads(len(SETS))
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 240 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["decode_gmm"],
        shell:
            "hadpsgd decode-gmm --config {params.config:q} --model {input.model:q} --graph {input.graph:q}"
            " --data {input.data:q} --feats {input.feats:q} --trans {input.trans:q} --out {output:q}"
            " --jobs {threads} 2> {log:q}"

    rule adapt:
        input:
            data=f"{OUT}/corpus/data/{{set}}",
            feats=f"{OUT}/feats/mfcc/{{set}}",
            model=f"{OUT}/ali/train",
            lang=f"{OUT}/lang",
            lattices=f"{OUT}/fmllr/{{set}}/lattices",
            trans=f"{OUT}/fmllr/{{set}}/first/trans",
        output:
            directory(f"{OUT}/fmllr/{{set}}/trans"),
        log:
            f"{OUT}/logs/fmllr/adapt.{{set}}.log",
        benchmark:
            f"{OUT}/benchmarks/adapt.{{set}}.tsv"
        wildcard_constraints:
            set="|".join(name for name in SETS if name != "train"),
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 4000 * attempt,
            runtime=lambda wildcards, attempt: 120 * attempt,
        params:
            config=config_file,
            depends=DEPENDS["adapt"],
        shell:
            "hadpsgd adapt --config {params.config:q} --model {input.model:q} --lattices {input.lattices:q}"
            " --data {input.data:q} --feats {input.feats:q} --lang {input.lang:q} --trans {input.trans:q}"
            " --out {output:q} 2> {log:q}"
