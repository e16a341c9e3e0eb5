"""The build hook: the dashboard's page, which `make page` builds, goes into the wheel and the sdist.

`NODROP_PAGE=required` refuses to build a wheel without it, as `make wheel` does. An sdist is never
made without it, and one that is unpacked has it: a wheel of it needs no Node.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/nodrop/servers/http/dist"


class PageHook(BuildHookInterface[Any]):
    """Puts the page into what is built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the page's folder, or refuse to go on without it."""
        if version == "editable":
            return  # it looks into the work tree, where `make page` puts the page
        folder = Path(self.root, PAGE)
        if (folder / "index.html").is_file():
            inside = PAGE.removeprefix("src/") if self.target_name == "wheel" else PAGE
            build_data["force_include"][str(folder)] = inside
        elif self.target_name == "sdist" or os.environ.get("NODROP_PAGE") == "required":
            raise SystemExit("The dashboard is not built, and no release is without it: make page")
        else:
            self.app.display_warning("The dashboard is not built: going on without it.")
