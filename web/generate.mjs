// Writes src/api/schema.ts, the types of the relay's API, from schema/openapi.json.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../schema/openapi.json", import.meta.url);
const target = new URL("src/api/schema.ts", import.meta.url);

/** "One of these fields must be given" is said by `anyOf`, of which the generator makes loose unions. */
const saysOnlyRequired = (schema) =>
  "required" in schema && Object.keys(schema).every((key) => key === "required" || key === "properties");

function straighten(value) {
  if (Array.isArray(value)) return value.map(straighten);
  if (value === null || typeof value !== "object") return value;
  const keep = new Set(["default", "example"]);
  const out = Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, keep.has(key) ? inner : straighten(inner)]),
  );
  for (const key of ["anyOf", "oneOf"])
    if (out.properties && Array.isArray(out[key]) && out[key].every(saysOnlyRequired)) delete out[key];
  if (out.const === null && !("type" in out)) {
    delete out.const;
    out.type = "null";
  }
  return out;
}

const document = straighten(JSON.parse(await readFile(source, "utf8")));
const tree = await openapiTS(document, { defaultNonNullable: false, emptyObjectsUnknown: true });
await writeFile(target, `// Made by \`npm run types\` from schema/openapi.json.\n${astToString(tree)}`);
