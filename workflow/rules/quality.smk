# Pictures to judge alignments and speaker adaptation by; `snakemake --report` shows them.
ADAPTED = [stream for stream in ("fmllr", "ivector") if stream in CONFIG.features.input]
# Kaldi's alignments do not say how utterances fit.
ALIGNED = ["durations", "silence", *(["fits"] if GMM else [])]
TRANSFORMS = f"{OUT}/ali/train" if CONFIG.estimates_fmllr else []


rule alignment_report:
    input:
        ali=f"{OUT}/ali/train",
        lang=f"{OUT}/lang",
        data=f"{OUT}/corpus/data/train",
    output:
        pictures=[
            report(
                f"{OUT}/quality/alignment/{picture}.png",
                caption=f"../report/{picture}.rst",
                category="Quality",
            )
            for picture in ALIGNED
        ],
        summary=f"{OUT}/quality/alignment/report.json",
    log:
        f"{OUT}/logs/alignment_report.log",
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        out=subpath(output.summary, parent=True),
    shell:
        "hadpsgd alignment-report --ali {input.ali:q} --lang {input.lang:q} --data {input.data:q}"
        " --out {params.out:q} 2> {log:q}"


if "ivector" in ADAPTED or TRANSFORMS:

    rule adaptation_report:
        input:
            data=f"{OUT}/corpus/data/train",
            trans=TRANSFORMS,
            ivectors=f"{OUT}/feats/ivector/train" if "ivector" in ADAPTED else [],
        output:
            pictures=[
                report(
                    f"{OUT}/quality/adaptation/{picture}.png",
                    caption="../report/adaptation.rst",
                    category="Quality",
                )
                for picture, there in (
                    ("log_determinants", TRANSFORMS),
                    ("ivectors", "ivector" in ADAPTED),
                )
                if there
            ],
            summary=f"{OUT}/quality/adaptation/adaptation.json",
        log:
            f"{OUT}/logs/adaptation_report.log",
        conda:
            "../../envs/hadpsgd.yaml"
        resources:
            mem_mb=lambda wildcards, attempt: 2000 * attempt,
            runtime=lambda wildcards, attempt: 60 * attempt,
        params:
            out=subpath(output.summary, parent=True),
            trans=lambda wildcards, input: (
                f"--trans {quote(str(input.trans))}" if input.trans else ""
            ),
            ivectors=lambda wildcards, input: (
                f"--ivectors {quote(str(input.ivectors))}" if input.ivectors else ""
            ),
        shell:
            "hadpsgd adaptation-report --data {input.data:q} {params.trans} {params.ivectors}"
            " --out {params.out:q} 2> {log:q}"
