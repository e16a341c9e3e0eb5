/** The part of JSON Schema that a form needs: which fields there are, and what is wrong with a value. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minItems?: number;
  maxItems?: number;
}

const SHORT: Record<string, string> = { str: "string", string: "string", text: "string", int: "integer", integer: "integer", float: "number", number: "number", bool: "boolean", boolean: "boolean", list: "array", array: "array", dict: "object", object: "object", any: "" };

/** Manifests may map names to short types: all of them required. */
export function expand(declared: unknown): Schema {
  if (declared === null || typeof declared !== "object") return {};
  const entries = Object.entries(declared as Record<string, unknown>);
  const shorthand = entries.length > 0 && entries.every(([, type]) => typeof type === "string" && type in SHORT);
  const alone = entries.length === 1 && entries[0]![0] === "type";
  if (!shorthand || alone) return declared as Schema;
  return {
    type: "object",
    properties: Object.fromEntries(entries.map(([name, type]) => [name, SHORT[type as string] ? { type: SHORT[type as string] } : {}])) as Record<string, Schema>,
    required: entries.map(([name]) => name),
  };
}

export function typeOf(schema: Schema): string {
  const type = Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type;
  return type ?? (schema.properties ? "object" : schema.items ? "array" : schema.enum ? "enum" : "");
}

export type Draft = string | boolean | undefined | { [name: string]: Draft };

/** Turn what was typed into a value; problems by path. */
export function read(schema: Schema, draft: Draft, required: boolean, path: string, problems: Map<string, string>): unknown {
  const type = typeOf(schema);
  if (type === "object" && schema.properties) {
    const typed = (typeof draft === "object" ? draft : {}) as Record<string, Draft>;
    const value: Record<string, unknown> = {};
    for (const [name, inner] of Object.entries(schema.properties)) {
      const below = read(inner, typed[name], schema.required?.includes(name) ?? false, path ? `${path}.${name}` : name, problems);
      if (below !== undefined) value[name] = below;
    }
    return !required && path !== "" && Object.keys(value).length === 0 ? undefined : value;
  }
  if (type === "boolean" && typeof draft === "boolean") return draft;
  const text = typeof draft === "string" ? draft : "";
  if (text.trim() === "") {
    if (required) problems.set(path, type === "boolean" ? "Choose yes or no" : "Required");
    return undefined;
  }
  return check(schema, type, text, path, problems);
}

function check(schema: Schema, type: string, text: string, path: string, problems: Map<string, string>): unknown {
  const wrong = (why: string): undefined => {
    problems.set(path, why);
    return undefined;
  };
  if (schema.enum) {
    const found = schema.enum.find((each) => String(each) === text);
    return found === undefined ? wrong(`One of ${schema.enum.map(String).join(", ")}`) : found;
  }
  if (type === "string") {
    if (schema.minLength !== undefined && text.length < schema.minLength) return wrong(`At least ${schema.minLength} characters`);
    if (schema.maxLength !== undefined && text.length > schema.maxLength) return wrong(`At most ${schema.maxLength} characters`);
    if (schema.pattern !== undefined && !matches(schema.pattern, text)) return wrong(`Must match ${schema.pattern}`);
    return text;
  }
  if (type === "integer" || type === "number") {
    const value = Number(text);
    if (!Number.isFinite(value)) return wrong("A number");
    if (type === "integer" && !Number.isInteger(value)) return wrong("A whole number");
    if (schema.minimum !== undefined && value < schema.minimum) return wrong(`At least ${schema.minimum}`);
    if (schema.maximum !== undefined && value > schema.maximum) return wrong(`At most ${schema.maximum}`);
    return value;
  }
  if (type === "array" && simple(schema.items)) {
    const items = text.split("\n").map((line) => line.trim()).filter(Boolean);
    if (schema.minItems !== undefined && items.length < schema.minItems) return wrong(`At least ${schema.minItems} lines`);
    if (schema.maxItems !== undefined && items.length > schema.maxItems) return wrong(`At most ${schema.maxItems} lines`);
    const inner = schema.items ?? { type: "string" };
    return items.map((item) => check(inner, typeOf(inner) || "string", item, path, problems));
  }
  try {
    const value: unknown = JSON.parse(text);
    if (type === "array" && !Array.isArray(value)) return wrong("A JSON array");
    if (type === "object" && (value === null || typeof value !== "object" || Array.isArray(value))) return wrong("A JSON object");
    if (type === "boolean" && typeof value !== "boolean") return wrong("true or false");
    return value;
  } catch {
    return type === "" ? text : wrong("JSON");
  }
}

function matches(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true; // the relay decides
  }
}

/** Whether a list is written one item per line. */
export function simple(items: Schema | undefined): boolean {
  return items === undefined || ["", "string", "integer", "number", "enum"].includes(typeOf(items));
}
