/** What a viewer may do about a handoff: the request, what it leads to, and the same as a command line. */
import type { Api, Handoff } from "../api/client.ts";
import { FINAL, LOST } from "./rows.ts";
import type { Session } from "./session.ts";

export interface Field {
  name: string;
  label: string;
  kind: "text" | "lines" | "agent" | "duration";
  required?: boolean;
  placeholder?: string;
}

type Values = Record<string, string>;

export interface Action {
  name: string;
  label: string;
  /** What happens when it is confirmed. */
  leads: string;
  danger?: boolean;
  fields: readonly Field[];
  send: (api: Api, h: Handoff, values: Values, key: string) => Promise<unknown>;
  command: (h: Handoff, values: Values) => string;
}

const INVISIBLE = /[\p{Cc}\p{Cf}]/u;

/** Quote for a shell. What cannot be seen is spelled out, so that what is pasted is what was read. */
export function sh(text: string): string {
  if (INVISIBLE.test(text)) {
    const escaped = [...text].map((char) => (INVISIBLE.test(char) ? `\\U${char.codePointAt(0)!.toString(16).padStart(8, "0")}` : char === "'" || char === "\\" ? `\\${char}` : char));
    return `$'${escaped.join("")}'`;
  }
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export function ref(h: Pick<Handoff, "id" | "ref">): string {
  return sh(h.ref.length < 80 ? h.ref : h.id);
}

function options(values: Values, names: readonly string[]): string {
  return names.map((name) => (values[name] ? ` --${name} ${sh(values[name])}` : "")).join("");
}

const given = (values: Values, names: readonly string[]): Values =>
  Object.fromEntries(names.filter((name) => values[name]).map((name) => [name, values[name]!]));

/** An answer that is JSON is sent as JSON; anything else is text. */
export function asValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const REASON: Field = { name: "reason", label: "Reason", kind: "text", placeholder: "for the log" };

const ANSWER: Action = {
  name: "answer",
  label: "Answer",
  leads: "The work goes on with this answer.",
  fields: [{ name: "answer", label: "Answer", kind: "lines", required: true, placeholder: "text, or JSON" }],
  send: (api, h, v, key) => api.post("/handoffs/{id}/answer", { seq: h.question!.seq, answer: asValue(v.answer ?? "") }, { id: h.id, key }),
  command: (h, v) => `nodrop answer ${ref(h)} ${sh(v.answer || "…")}`,
};
const AGREE: Action = {
  name: "agree",
  label: "Agree",
  leads: "The work goes on under the new terms.",
  fields: [],
  send: (api, h, _, key) => api.post("/handoffs/{id}/agree", { seq: h.question!.seq }, { id: h.id, key }),
  command: (h) => `nodrop agree ${ref(h)}`,
};
const DECLINE: Action = {
  name: "decline",
  label: "Decline",
  leads: "The next candidate is asked; where there is none, it is rejected.",
  danger: true,
  fields: [REASON],
  send: (api, h, v, key) => api.post("/handoffs/{id}/decline", { seq: h.question!.seq, ...given(v, ["reason"]) }, { id: h.id, key }),
  command: (h, v) => `nodrop decline ${ref(h)}${v.reason ? ` ${sh(v.reason)}` : ""}`,
};
const CANCEL: Action = {
  name: "cancel",
  label: "Cancel",
  leads: "The work is withdrawn, and what is unfinished below it. This cannot be undone.",
  danger: true,
  fields: [REASON],
  send: (api, h, v, key) => api.post("/handoffs/{id}/cancel", given(v, ["reason"]), { id: h.id, key }),
  command: (h, v) => `nodrop cancel ${ref(h)}${v.reason ? ` ${sh(v.reason)}` : ""}`,
};
const REASSIGN: Action = {
  name: "reassign",
  label: "Reassign",
  leads: "It goes to the inbox of the new recipient; an attempt that runs now is ended.",
  fields: [{ name: "to", label: "To", kind: "agent", required: true }, REASON],
  send: (api, h, v, key) => api.post("/handoffs/{id}/reassign", given(v, ["to", "reason"]), { id: h.id, key }),
  command: (h, v) => `nodrop reassign ${ref(h)}${options(v, ["to", "reason"])}`,
};
export const REDRIVE: Action = {
  name: "redrive",
  label: "Redrive",
  leads: "A successor is handed off with the recorded steps, answers and remaining legs, and fresh deadlines.",
  fields: [
    { name: "to", label: "To", kind: "agent", placeholder: "the same as before" },
    { name: "deadline", label: "Deadline", kind: "duration", placeholder: "as long as before" },
    REASON,
  ],
  send: (api, h, v, key) => api.post("/dead-letters/{id}/redrive", given(v, ["to", "deadline", "reason"]), { id: h.id, key }),
  command: (h, v) => `nodrop dlq redrive ${ref(h)}${options(v, ["to", "deadline", "reason"])}`,
};
export const DISCARD: Action = {
  name: "discard",
  label: "Discard",
  leads: "Nothing more is done about it. It stays in the log.",
  danger: true,
  fields: [REASON],
  send: (api, h, v, key) => api.post("/dead-letters/{id}/discard", given(v, ["reason"]), { id: h.id, key }),
  command: (h, v) => `nodrop dlq discard ${ref(h)}${options(v, ["reason"])}`,
};
const ACCEPT: Action = {
  name: "accept",
  label: "Accept late result",
  leads: "The result that came after the end counts, as a completed successor.",
  fields: [],
  send: (api, h, _, key) => api.post("/dead-letters/{id}/accept", {}, { id: h.id, key }),
  command: (h) => `nodrop dlq accept ${ref(h)}`,
};
const SETTLE: Action = {
  name: "settle",
  label: "Settle",
  leads: "You have the outcome; nothing more is owed.",
  fields: [],
  send: (api, h, _, key) => api.post("/handoffs/{id}/settle", {}, { id: h.id, key }),
  command: (h) => `nodrop settle ${ref(h)}`,
};
const NOTE: Action = {
  name: "note",
  label: "Note",
  leads: "Everybody who reads the log sees it.",
  fields: [{ name: "text", label: "Note", kind: "lines", required: true }],
  send: (api, h, v, key) => api.post("/handoffs/{id}/notes", { text: v.text ?? "" }, { id: h.id, key }),
  command: (h, v) => `nodrop note ${sh(v.text || "…")} --handoff ${ref(h)}`,
};

/** The actions that the relay would let this viewer take now; the relay decides all the same. */
export function actionsFor(h: Handoff, who: Pick<Session, "agent" | "role">): Action[] {
  if (who.role === "observer") return [];
  const found: Action[] = [];
  const ended = FINAL.has(h.state);
  const owns = who.role === "operator" || who.agent === h.chain.origin || who.agent === h.from;
  if (h.question && (owns || h.question.asked === who.agent)) found.push(...(h.question.kind === "terms" ? [AGREE, DECLINE] : [ANSWER]));
  if (LOST.has(h.state) && h.decision === null && owns) {
    if (h.late_result) found.push(ACCEPT);
    found.push(REDRIVE, DISCARD);
  }
  if (!ended && owns) found.push(REASSIGN, CANCEL);
  if (ended && h.settled_at === null && (who.role === "operator" || who.agent === h.chain.origin)) found.push(SETTLE);
  found.push(NOTE);
  return found;
}
