/** One action: what it needs, what it leads to, the same as a command line, and a confirmation. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { commandId, type Handoff, type Problem } from "../api/client.ts";
import type { Action } from "../state/actions.ts";
import { agentNames } from "../state/agents.ts";
import { api } from "../state/session.ts";
import { asProblem, Command, Dialog, Refusal, say } from "./bits.tsx";
import { Line, plural } from "./text.tsx";

export function ActionDialog({ action, handoffs, onClose, onDone, what }: { action: Action; handoffs: readonly Handoff[]; onClose: () => void; onDone: () => void; what?: string }): JSX.Element {
  const [values, setValues] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState<number | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [refused, setRefused] = useState<string[]>([]);
  const [keys] = useState(() => handoffs.map(() => commandId()));
  const one = handoffs.length === 1 ? handoffs[0]! : null;
  const missing = action.fields.some((field) => field.required && !values[field.name]?.trim());

  const confirm = async () => {
    setProblem(null);
    const failed: string[] = [];
    for (const [i, h] of handoffs.entries()) {
      setBusy(i);
      try {
        await action.send(api.value, h, values, keys[i]!);
      } catch (error) {
        const why = asProblem(error);
        if (one) {
          setProblem(why);
          setBusy(null);
          return;
        }
        failed.push(`${h.ref}: ${why.message} (${why.code})`);
      }
    }
    setBusy(null);
    onDone();
    const done = handoffs.length - failed.length;
    say(one ? `${action.label}: done.` : `${action.label}: ${plural(done, "handoff")} done${failed.length ? `, ${failed.length} refused` : ""}.`);
    if (failed.length > 0) setRefused(failed);
    else onClose();
  };

  const title = one ? action.label : `${action.label} ${plural(handoffs.length, "handoff")}`;
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!missing && busy === null) void confirm();
        }}
      >
        <p class="subject">{one ? <Line text={one.title ?? one.ref} /> : (what ?? "The selected dead letters")}</p>
        {action.name === "answer" && one?.question?.question && (
          <blockquote>
            <Line text={one.question.question} most={2000} />
          </blockquote>
        )}
        {one?.question?.terms && (
          <dl class="facts">
            {Object.entries(one.question.terms).map(([name, value]) => (
              <>
                <dt>{name}</dt>
                <dd>{String(value)}</dd>
              </>
            ))}
          </dl>
        )}
        {action.fields.map((field, i) => (
          <label key={field.name} class="field">
            <span>
              {field.label}
              {field.required ? "" : " (optional)"}
            </span>
            {field.kind === "lines" ? (
              <textarea rows={3} autofocus={i === 0} placeholder={field.placeholder} value={values[field.name] ?? ""} onInput={(event) => setValues({ ...values, [field.name]: event.currentTarget.value })} />
            ) : (
              <input
                type="text"
                autofocus={i === 0}
                list={field.kind === "agent" ? "agents" : undefined}
                placeholder={field.placeholder}
                value={values[field.name] ?? ""}
                onInput={(event) => setValues({ ...values, [field.name]: event.currentTarget.value })}
              />
            )}
          </label>
        ))}
        <datalist id="agents">
          {agentNames.value.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <p class="leads">{action.leads}</p>
        {one && <Command text={action.command(one, values)} />}
        <Refusal problem={problem} />
        {refused.length > 0 && (
          <ul class="refused">
            {refused.slice(0, 20).map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        )}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            {refused.length > 0 ? "Close" : "Back"}
          </button>
          {refused.length === 0 && (
            <button type="submit" class={action.danger ? "danger" : "primary"} disabled={missing || busy !== null}>
              {busy === null ? title : handoffs.length > 1 ? `${busy + 1} of ${handoffs.length}` : "…"}
            </button>
          )}
        </div>
      </form>
    </Dialog>
  );
}
