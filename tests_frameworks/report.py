"""The matrix as a table: printed, and written to `docs/interop.md` when every cell was run."""

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from troupe import CALLERS, TARGETS

PAGE = Path(__file__).parents[1] / "docs" / "interop.md"
ASPECTS = {
    "result": "the result comes back",
    "correlation": "both handoffs share one correlation id, and name each other",
    "trace": "a tool of the second agent sees the trace id that the first handoff came with",
    "deadline": "it sees what is left of the first one's deadline",
    "contract": "a payload or a result that does not fit is refused, with the code that says so",
    "failure": "a failure is an answer, with its reason",
    "cancel": "cancelling the first cancels the second",
    "help": "a question of the second reaches whoever began, and the answer goes back",
}
FEATS = {
    "killed": "killed (-9) in the middle: another process went on, one outcome",
    "parked": "parked with a question, all its processes killed, answered, resumed by a new one",
    "held": "died while it held a question, ran again, and did not ask again",
    "six": "six handoffs at once on one object: none heard another",
    "fenced": "its thread outlived the cancel, and could do nothing any more",
}
PACKAGES = [
    *("langgraph", "autogen-agentchat", "crewai", "openai-agents", "pydantic-ai-slim"),
    *("google-adk", "agent-framework-core", "llama-index-workflows", "smolagents", "a2a-sdk"),
]


@dataclass
class Report:
    """What was seen of each pair."""

    cells: dict[tuple[str, str], dict[str, bool]] = field(default_factory=dict)
    alone: dict[tuple[str, str], bool] = field(default_factory=dict)
    """What was seen of one agent by itself: by feat and agent."""

    def add(self, caller: str, target: str, cell: dict[str, bool]) -> None:
        self.cells[caller, target] = cell

    def saw(self, feat: str, agent: str) -> None:
        self.alone[feat, agent] = True

    @property
    def complete(self) -> bool:
        return all((caller, target) in self.cells for caller in CALLERS for target in TARGETS)

    def table(self) -> str:
        """A row for whoever hands off, a column for whoever works; what is amiss is named."""
        lines = [
            "| hands off ↓ works → | " + " | ".join(TARGETS) + " |",
            "|---" * (len(TARGETS) + 1) + "|",
        ]
        for caller in CALLERS:
            cells = [self._shown(caller, target) for target in TARGETS]
            lines.append(f"| **{caller}** | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def feats(self) -> str:
        """A row for each feat, of those that were tried."""
        shown = [(feat, meaning) for feat, meaning in FEATS.items() if self._agents(feat)]
        return "\n".join(
            f"- **{meaning}**: {', '.join(self._agents(feat))}" for feat, meaning in shown
        )

    def _agents(self, feat: str) -> list[str]:
        return [agent for seen, agent in self.alone if seen == feat]

    def page(self, seconds: float) -> str:
        versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
        aspects = "\n".join(f"- **{name}**: {meaning}" for name, meaning in ASPECTS.items())
        held = sum(sum(cell.values()) for cell in self.cells.values())
        asked = len(self.cells) * len(ASPECTS)
        return (
            "# Every framework with every other\n\n"
            "Written by `make test-frameworks`; do not edit. One relay process, a process for "
            "each framework, models scripted, no network but loopback.\n\n"
            f"{held} of {asked} hold: {len(CALLERS)} that hand off × {len(TARGETS)} "
            f"kinds of agent that work × {len(ASPECTS)} aspects, in {seconds:.0f} s.\n\n"
            f"{self.table()}\n\nA cell is the number of aspects that hold, and names those that do "
            f"not:\n\n{aspects}\n\nEach by itself, in the same run:\n\n{self.feats()}\n\n"
            f"Ran with {versions}.\n"
        )

    def _shown(self, caller: str, target: str) -> str:
        cell = self.cells.get((caller, target))
        if cell is None:
            return "–"
        amiss = [aspect for aspect in ASPECTS if not cell.get(aspect)]
        return " ".join([f"{len(ASPECTS) - len(amiss)}/{len(ASPECTS)}", *amiss])
