/** A form made from a capability's input schema, which hands work off. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { commandId, type Problem } from "../api/client.ts";
import { sh } from "../state/actions.ts";
import { address, go } from "../state/route.ts";
import { type Draft, expand, read, type Schema, simple, typeOf } from "../state/schema.ts";
import { api } from "../state/session.ts";
import { oneLine } from "./text.tsx";
import { asProblem, Command, Refusal, say } from "./bits.tsx";

export function HandOffForm({ agent, capability, schema: declared }: { agent: string; capability: string; schema: unknown }): JSX.Element {
  const schema = expand(declared);
  const [draft, setDraft] = useState<Record<string, Draft>>({});
  const [title, setTitle] = useState("");
  const [deadline, setDeadline] = useState("");
  const [priority, setPriority] = useState("medium");
  const [problems, setProblems] = useState<Map<string, string>>(new Map());
  const [refusal, setRefusal] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [key, setKey] = useState(commandId);
  const shaped = typeOf(schema) === "object" && schema.properties !== undefined;

  const payload = (into: Map<string, string>) => read(shaped ? schema : { ...schema, type: schema.type ?? "object" }, shaped ? draft : draft.payload, shaped, shaped ? "" : "payload", into);

  const submit = async () => {
    const found = new Map<string, string>();
    const value = payload(found);
    setProblems(found);
    setRefusal(null);
    if (found.size > 0) {
      const first = [...found.keys()][0]!;
      document.getElementById(`f:${first}`)?.focus();
      return;
    }
    setBusy(true);
    try {
      const { handoff } = await api.value.post(
        "/handoffs",
        { to: agent, capability, priority: priority as "medium", ...(title ? { title } : {}), ...(deadline ? { deadline } : {}), ...(value === undefined ? {} : { payload: value }) },
        { key },
      );
      say(`Handed off to ${agent}.`);
      setKey(commandId());
      go(address("now", null, { open: handoff.id }));
    } catch (error) {
      const why = asProblem(error);
      setProblems(new Map(why.errors.map((each) => [each.path.replace(/^payload\.?/, ""), each.message])));
      setRefusal(why);
    } finally {
      setBusy(false);
    }
  };

  const soFar = payload(new Map());
  const command = `nodrop send --to ${sh(agent)} --capability ${sh(capability)}${title ? ` --title ${sh(title)}` : ""}${deadline ? ` --deadline ${sh(deadline)}` : ""}${soFar === undefined ? "" : ` --payload ${sh(JSON.stringify(soFar))}`}`;
  return (
    <form
      class="handoff-form"
      noValidate
      aria-label={`Hand off ${capability}`}
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) void submit();
      }}
    >
      <label class="field">
        <span>Title</span>
        <input type="text" value={title} onInput={(event) => setTitle(event.currentTarget.value)} />
      </label>
      {shaped ? (
        <Fields schema={schema} draft={draft} path="" problems={problems} onChange={(next) => setDraft(next)} />
      ) : (
        <FieldInput schema={{ type: "object", title: "Payload (JSON)" }} name="payload" path="payload" required={false} draft={draft.payload} problem={problems.get("payload")} onChange={(next) => setDraft({ payload: next })} />
      )}
      <div class="pair">
        <label class="field">
          <span>Deadline</span>
          <input type="text" placeholder="24h" value={deadline} onInput={(event) => setDeadline(event.currentTarget.value)} />
        </label>
        <label class="field">
          <span>Priority</span>
          <select value={priority} onChange={(event) => setPriority(event.currentTarget.value)}>
            {["low", "medium", "high", "urgent"].map((each) => (
              <option key={each} value={each} selected={each === priority}>
                {each}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Command text={command} />
      <Refusal problem={refusal} />
      <button type="submit" class="primary" disabled={busy}>
        Hand off to {agent}
      </button>
    </form>
  );
}

function Fields({ schema, draft, path, problems, onChange }: { schema: Schema; draft: Record<string, Draft>; path: string; problems: Map<string, string>; onChange: (draft: Record<string, Draft>) => void }): JSX.Element {
  return (
    <>
      {Object.entries(schema.properties ?? {}).map(([name, inner]) => {
        const here = path ? `${path}.${name}` : name;
        const required = schema.required?.includes(name) ?? false;
        if (typeOf(inner) === "object" && inner.properties)
          return (
            <fieldset key={name}>
              <legend>{oneLine(inner.title ?? name)}</legend>
              <Fields schema={inner} draft={(typeof draft[name] === "object" ? draft[name] : {}) as Record<string, Draft>} path={here} problems={problems} onChange={(next) => onChange({ ...draft, [name]: next })} />
            </fieldset>
          );
        return <FieldInput key={name} schema={inner} name={name} path={here} required={required} draft={draft[name]} problem={problems.get(here)} onChange={(next) => onChange({ ...draft, [name]: next })} />;
      })}
    </>
  );
}

function FieldInput({ schema, name, path, required, draft, problem, onChange }: { schema: Schema; name: string; path: string; required: boolean; draft: Draft; problem: string | undefined; onChange: (draft: Draft) => void }): JSX.Element {
  const type = typeOf(schema);
  const id = `f:${path}`;
  const text = typeof draft === "string" ? draft : "";
  const common = { id, "aria-invalid": problem ? ("true" as const) : undefined, "aria-describedby": problem ? `${id}:why` : undefined };
  const list = type === "array" && simple(schema.items);
  const long = list || type === "object" || (type === "array" && !list) || type === "";
  return (
    <div class="field">
      <label for={id}>
        {oneLine(schema.title ?? name)} <span class="quiet">{list ? "one per line" : type || "any JSON"}{required ? "" : ", optional"}</span>
      </label>
      {schema.description && <span class="quiet hint">{oneLine(schema.description, 500)}</span>}
      {type === "boolean" || schema.enum ? (
        <select {...common} onChange={(event) => onChange(type === "boolean" && !schema.enum ? (event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true") : event.currentTarget.value)}>
          <option value="">–</option>
          {(schema.enum ?? ["true", "false"]).map((each) => (
            <option key={String(each)} value={String(each)} selected={String(draft) === String(each)}>
              {type === "boolean" ? (String(each) === "true" ? "yes" : "no") : oneLine(String(each))}
            </option>
          ))}
        </select>
      ) : long ? (
        <textarea {...common} rows={list ? 3 : 4} value={text} onInput={(event) => onChange(event.currentTarget.value)} />
      ) : (
        <input {...common} type="text" inputMode={type === "integer" || type === "number" ? "decimal" : undefined} placeholder={schema.default === undefined ? "" : String(schema.default)} value={text} onInput={(event) => onChange(event.currentTarget.value)} />
      )}
      {problem && (
        <span class="wrong" id={`${id}:why`} role="alert">
          {oneLine(problem)}
        </span>
      )}
    </div>
  );
}
