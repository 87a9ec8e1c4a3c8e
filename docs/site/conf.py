"""The documentation as a site: Sphinx reads the Markdown where it lies (`make docs`)."""

project = "H-ADPSGD"
author = "The H-ADPSGD authors"
extensions = ["myst_parser", "sphinx_external_toc"]

include_patterns = ["*.md", "docs/**.md", "config/*.md", "profiles/**.md"]
external_toc_path = "docs/site/toc.yml"

myst_heading_anchors = 4
# on a forge `[page](other.md)` is a link; so it is here
myst_links_external_new_tab = True
highlight_language = "text"

html_theme = "furo"
html_title = "H-ADPSGD"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_copyright = False
