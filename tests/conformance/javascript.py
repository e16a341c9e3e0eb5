"""The JavaScript SDK of A2A against a relay: installs it beside, runs `client.mjs`, says what it saw."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from standing import HERE, standing

PACKAGES = ["@a2a-js/sdk@^1.3.0", "jose@^6"]
INSTALL_SECONDS_MAX = 300
CLIENT_SECONDS_MAX = 120


def main() -> int:
    """Return 0 if everything was as it should be."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            sys.stderr.write(f"{tool} is needed, and not found\n")
            return 2
    with tempfile.TemporaryDirectory() as folder, standing() as address:
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES]
        subprocess.run(install, cwd=folder, check=True, timeout=INSTALL_SECONDS_MAX)
        script = Path(folder) / "client.mjs"
        script.write_bytes((HERE / "client.mjs").read_bytes())
        ran = subprocess.run(
            ["node", str(script), address], cwd=folder, check=False, timeout=CLIENT_SECONDS_MAX
        )
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
