"""The templates, with the filters that they use."""

from __future__ import annotations

from importlib import resources

import jinja2

from q1pipe.report.numbers import duration, metric, number, share


def template(name: str) -> jinja2.Template:
    """A file of templates/; text that is filled into HTML is escaped, and a name that is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(resources.files("q1pipe") / "report/templates")),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "share": share, "metric": metric, "duration": duration}
    return environment.get_template(name)
