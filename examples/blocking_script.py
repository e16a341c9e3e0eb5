"""A plain script, no event loop in sight: hands work off, waits for it, reads the log.

Everything has a blocking twin, and the worker, a process of its own, is a plain function too.
"""

import json
import os
import subprocess
import sys

import nodrop

agent = nodrop.Agent("summarizer")


@agent.capability("summarize")
def summarize(text: str, words: int = 4) -> str:
    return " ".join(text.split()[:words]) + " …"


def main() -> None:
    with nodrop.connect_sync(agent="editor") as me:
        handoff = me.hand_off(
            to="summarizer",
            payload={"text": "Agents work alone and fall apart together"},
            deadline="1 hour",
        )
        print(handoff.result(wait="30s"))
        handoff.settle()  # until the relay has heard that the result is here
        for entry in me.log(handoff_id=handoff.id):
            print(entry.actor, entry.type)


if __name__ == "__main__":
    if "work" in sys.argv:
        agent.run()
    else:  # a relay and a worker to talk to; usually both are somewhere else
        relay = subprocess.Popen(["nodrop", "up", "--port=0", "--json"], stdout=subprocess.PIPE)
        assert relay.stdout is not None
        os.environ["NODROP_URL"] = json.loads(relay.stdout.readline())["url"]
        worker = subprocess.Popen([sys.executable, __file__, "work"])
        try:
            main()
        finally:
            for process in (worker, relay):
                process.terminate()
                process.wait()
