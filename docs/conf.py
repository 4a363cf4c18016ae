"""How Sphinx makes the site from the executed notebooks: `make site`. Nothing is executed and nothing is fetched."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions"), str(HERE.parent / "tools")]

import address  # noqa: E402

from tfbook import __version__  # noqa: E402

(HERE / "_build/extra").mkdir(parents=True, exist_ok=True)  # what lessons.py and pages.py write

project = "tfbook"
author = "The tfbook authors"
project_copyright = "The tfbook authors; code under MIT, texts and figures under CC BY 4.0"
release = version = __version__
language = "en"
repository = f"https://github.com/{address.slug()}"

extensions = [
    *("myst_nb", "sphinx.ext.autodoc"),
    *("mathml", "lessons", "pages", "reference", "course_map", "epub"),
]
exclude_patterns = ["_build", "extensions", "teaching/**/*.toml"]
nb_execution_mode = "off"
nb_merge_streams = True
nb_mime_priority_overrides = [("epub", "text/html", 10), ("epub", "text/plain", 90)]
myst_enable_extensions = ["dollarmath", "amsmath", "attrs_inline"]
myst_heading_anchors = 4
myst_heading_slug_func = "lessons.anchor"

smartquotes_action = "qe"  # not dashes: an option begins with two

html_theme = "furo"
html_title = "tfbook"
html_favicon = "static/favicon.svg"
html_static_path = ["static"]
html_extra_path = ["_build/extra"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_use_index = False  # the search finds names, too
html_domain_indices = False
html_theme_options = {
    "source_repository": repository,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": [],
    "footer_icons": [],
}

default_role = "code"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
toc_object_entries = False
python_maximum_signature_line_length = 88
add_module_names = False
python_display_short_literal_types = True

epub_title = "tfbook: a course on attention and Transformers"
epub_theme = "epub"
epub_basename = "tfbook"
epub_show_urls = "no"
epub_tocdepth = 2
epub_use_index = False
epub_exclude_files = [".nojekyll", "model.html"]
