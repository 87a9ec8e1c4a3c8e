FIRST_PASS = f"{OUT}/lm/first_pass.arpa.gz" if CONFIG.lm.first_pass_threshold else []
LM_SOURCES = [
    *CONFIG.lm.sources.values(),
    *([CONFIG.lm.arpa] if CONFIG.lm.arpa else []),
]


rule lm:
    input:
        config=ancient(CONFIG_FILE),
        text=f"{OUT}/corpus/lm/train.txt",
        dev=f"{OUT}/corpus/lm/dev.txt",
        lang=f"{OUT}/lang",
        sources=LM_SOURCES,
    output:
        arpa=f"{OUT}/lm/{CONFIG.lm.order}gram.arpa.gz",
        report=f"{OUT}/lm/report.json",
        first_pass=FIRST_PASS,
    log:
        f"{OUT}/logs/lm.log",
    benchmark:
        f"{OUT}/benchmarks/lm.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        depends=DEPENDS["lm"],
        out=subpath(output.report, parent=True),
    shell:
        "hadpsgd lm --config {input.config} --text {input.text} --dev {input.dev}"
        " --lang {input.lang} --out {params.out} 2> {log}"


rule graph:
    input:
        config=ancient(CONFIG_FILE),
        lang=f"{OUT}/lang",
        ali=f"{OUT}/ali/train",
        arpa=rules.lm.output.arpa,
        first_pass=FIRST_PASS,
    output:
        directory(f"{OUT}/graph"),
    log:
        f"{OUT}/logs/graph.log",
    benchmark:
        f"{OUT}/benchmarks/graph.tsv"
    conda:
        "../../envs/hadpsgd.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        depends=DEPENDS["graph"],
        first_pass=lambda wildcards, input: (
            f"--first-pass {input.first_pass}" if input.first_pass else ""
        ),
    shell:
        "hadpsgd graph --config {input.config} --lang {input.lang} --ali {input.ali}"
        " --arpa {input.arpa} {params.first_pass} --out {output} 2> {log}"
