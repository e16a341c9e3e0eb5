"""LlamaIndex workflows on stage: a workflow that does what `brain` decides."""

from workflows import Context, Workflow, step
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from cast import brain
from nodrop import Agent
from nodrop.adapters import llama_index


class Act(Workflow):
    def __init__(self, targets: list[str]) -> None:
        super().__init__(timeout=60)
        self._tools = {
            f"hand_off_to_{to}": llama_index.hand_off_tool(to=to, attempts_max=2) for to in targets
        }

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent | InputRequiredEvent:
        await ctx.store.set("task", ev.task)
        heard: list[str] = []
        while True:
            match brain.decide(ev.task, heard):
                case brain.Say(text):
                    return StopEvent(result=text)
                case brain.Ask(question):
                    return InputRequiredEvent.model_validate({"prefix": question})
                case brain.Call("report"):
                    heard.append(brain.report())
                case brain.Call("hold"):
                    heard.append(await brain.hold_async())
                case brain.Call(name, arguments):
                    context = arguments["context_json"]
                    heard.append(await self._tools[name](arguments["task"], context))

    @step
    async def answered(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        match brain.decide(await ctx.store.get("task"), [str(ev.response)]):
            case brain.Say(text):
                return StopEvent(result=text)
            case _:
                raise AssertionError("what was heard is said")


def members(targets: list[str]) -> list[Agent]:
    return [llama_index.as_agent(Act(targets), agent="llama_index", **brain.terms())]
