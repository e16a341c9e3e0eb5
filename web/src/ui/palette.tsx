/** The command palette: views, open handoffs, agents, and what can be done about the open handoff. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { agentNames, readAgents } from "../state/agents.ts";
import { all } from "../state/board.ts";
import { next, THEMES, theme, TIMES, times } from "../state/prefs.ts";
import { address, go, opened, withFilters } from "../state/route.ts";
import { word } from "../state/rows.ts";
import { signOut } from "../state/session.ts";
import { Dialog } from "./bits.tsx";
import { Line } from "./text.tsx";

export interface Choice {
  label: string;
  hint: string;
  run: () => void;
}

export function rankChoices(choices: readonly Choice[], words: string): Choice[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return choices.filter((choice) => wanted.every((each) => `${choice.label} ${choice.hint}`.toLowerCase().includes(each))).slice(0, 12);
}

export function Palette({ views, onClose, onHelp }: { views: readonly [string, string][]; onClose: () => void; onHelp: () => void }): JSX.Element {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    void readAgents().catch(() => {});
    input.current?.focus();
  }, []);
  const choices = useMemo<Choice[]>(
    () => [
      ...views.map(([view, name]) => ({ label: name, hint: "go to", run: () => go(address(view)) })),
      ...(opened.value ? [{ label: "Close the handoff", hint: "Esc", run: () => go(withFilters({ open: null })) }] : []),
      ...(opened.value ? [{ label: "Show this handoff alone", hint: "full page", run: () => go(address("handoffs", opened.value)) }] : []),
      { label: `Theme: ${next(THEMES, theme.value)}`, hint: "t", run: () => (theme.value = next(THEMES, theme.value)) },
      { label: `Times: ${next(TIMES, times.value)}`, hint: "u", run: () => (times.value = next(TIMES, times.value)) },
      { label: "Keys", hint: "?", run: onHelp },
      { label: "Sign out", hint: "ends this tab's sign-in", run: () => signOut() },
      ...agentNames.value.map((name) => ({ label: name, hint: "agent", run: () => go(address("agents", name)) })),
      ...all.value.slice(0, 2_000).map((row) => ({ label: row.title ?? row.ref, hint: `${row.ref} · ${word(row.state)} · ${row.holder ?? ""}`, run: () => go(address("now", null, { open: row.id })) })),
    ],
    [agentNames.value, opened.value],
  );
  const shown = rankChoices(choices, words);
  const run = (choice: Choice | undefined) => {
    if (!choice) return;
    onClose();
    choice.run();
  };
  return (
    <Dialog title="Command palette" onClose={onClose}>
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="choices"
        aria-activedescendant={shown[at] ? `choice-${at}` : undefined}
        aria-label="Find a view, a handoff, an agent or a command"
        placeholder="Find a view, a handoff, an agent …"
        autofocus
        value={words}
        onInput={(event) => {
          setWords(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            setAt((at + (event.key === "ArrowDown" ? 1 : shown.length - 1)) % Math.max(shown.length, 1));
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(shown[at]);
          }
        }}
      />
      <ul id="choices" class="choices" role="listbox" aria-label="Choices">
        {shown.map((choice, i) => (
          <li key={`${choice.label}${i}`} id={`choice-${i}`} role="option" aria-selected={i === at} onClick={() => run(choice)} onMouseMove={() => setAt(i)}>
            <span>
              <Line text={choice.label} most={90} />
            </span>
            <span class="quiet">
              <Line text={choice.hint} most={60} />
            </span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
