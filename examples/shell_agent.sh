#!/usr/bin/env bash
# Any command is an agent: `nodrop work` runs it for each handoff, and its output is the result.
set -euo pipefail

nodrop up --port 0 --json > up.json &
relay=$!
trap 'kill $relay $worker 2>/dev/null; wait' EXIT
until [ -s up.json ]; do sleep 0.1; done # it prints its address once it serves
NODROP_URL=$(python3 -c 'import json; print(json.load(open("up.json"))["url"])')
export NODROP_URL

nodrop work shouter --exec 'python3 -c "
import json, sys
print(json.load(sys.stdin)[\"handoff\"][\"payload\"][\"text\"].upper())"' 2> work.log &
worker=$!

nodrop send --agent inbox_monitor --to shouter --title 'Say it louder' \
  --payload '{"text": "nothing dropped"}' --key louder --wait 30s 2> /dev/null

nodrop track inbox_monitor/louder --json |
  python3 -c 'import json, sys
print(*(r["rung"] for r in json.load(sys.stdin)["handoff"]["receipts"]), sep=" ")'
