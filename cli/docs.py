"""Regenerate the generated parts of docs/ and the generated modules: `make docs`.

A test compares `pages()` with the committed files.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pages() -> dict[str, str]:
    """Return the text of each generated page and module, by its path relative to the repository's root."""
    from ..broker.observability.metrics import metrics_markdown
    from ..connect.worker.metrics import metrics_markdown as connect_metrics_markdown
    from ..pipeline import documentation as pipeline_pages
    from ..protocol.documentation import updated
    from . import access_docs, client_settings_docs, command_docs, connect_docs, keyword_types, transaction_docs
    from .broker_settings_docs import configuration_markdown

    formats, transactions, pipeline = "docs/formats.md", "docs/transactions.md", "docs/pipeline.md"
    return {
        "broker/keywords.py": keyword_types.broker_keywords(),
        "client/keywords.py": keyword_types.client_keywords(),
        "docs/configuration.md": configuration_markdown(),
        "docs/connect-metrics.md": connect_metrics_markdown(),
        "docs/metrics.md": metrics_markdown(),
        "docs/reference/access.md": access_docs.page(),
        "docs/reference/client-settings.md": client_settings_docs.page(),
        "docs/reference/commands.md": command_docs.page(),
        "docs/reference/connect-settings.md": connect_docs.page(),
        formats: updated((ROOT / formats).read_text(encoding="utf-8")),
        pipeline: pipeline_pages.page((ROOT / pipeline).read_text(encoding="utf-8")),
        transactions: transaction_docs.page((ROOT / transactions).read_text(encoding="utf-8")),
    }


def main() -> int:
    """Write every page whose text has changed, and print its name. Return the exit code 0."""
    for name, text in pages().items():
        page = ROOT / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
            print(f"written {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
