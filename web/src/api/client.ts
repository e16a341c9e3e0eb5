/** The relay's HTTP API, typed by its OpenAPI document. Knows nothing of the page around it. */
import type { components, paths } from "./schema.ts";

export type Schemas = components["schemas"];
export type Handoff = Schemas["HandoffView"];
export type Entry = Schemas["EntryView"];
export type Agent = Schemas["AgentView"];
export type Item = Schemas["ItemView"];
export type Trace = Schemas["TraceAnswer"];
export type Step = Schemas["TraceStepView"];
export type Break = Schemas["BreakView"];

type Method = "get" | "post" | "put" | "delete";
type PathFor<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];
type Operation<P extends keyof paths, M extends Method> = M extends keyof paths[P] ? paths[P][M] : never;
type Content<R> = R extends { content: { "application/json": infer A } } ? A : never;
type Answer<O> = O extends { responses: infer R }
  ? Content<R extends { 201: infer C } ? C : R extends { 200: infer C } ? C : never>
  : never;
type Body<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;

export interface Names {
  id?: string;
  name?: string;
}

/** A refusal of the relay, with its code and what to do next; or that the relay was not reached. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly next: string | null;
  readonly errors: readonly { path: string; message: string }[];

  constructor(status: number, document: Record<string, unknown>) {
    super(String(document.detail ?? document.title ?? `HTTP ${status}`));
    this.name = "Problem";
    this.status = status;
    this.code = String(document.code ?? "unknown");
    this.next = typeof document.next === "string" ? document.next : null;
    this.errors = Array.isArray(document.errors) ? document.errors : [];
  }

  get unreachable(): boolean {
    return this.status === 0;
  }
}

/** An id for a command, so that sending it again is the same command. Works without a secure context. */
export function commandId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Api {
  readonly base: URL;
  readonly token: string | null;
  /** Called when the relay no longer accepts the token. */
  onSignedOut: (problem: Problem) => void = () => {};

  constructor(base: URL, token: string | null) {
    this.base = base;
    this.token = token;
  }

  get<P extends PathFor<"get">>(
    path: P,
    options: Names & { query?: Query<Operation<P, "get">>; signal?: AbortSignal } = {},
  ): Promise<Answer<Operation<P, "get">>> {
    return this.request("GET", this.address(path, options, options.query as object), { signal: options.signal });
  }

  post<P extends PathFor<"post">>(
    path: P,
    body: Body<Operation<P, "post">>,
    options: Names & { key?: string } = {},
  ): Promise<Answer<Operation<P, "post">>> {
    return this.request("POST", this.address(path, options), { body, key: options.key ?? commandId() });
  }

  put<P extends PathFor<"put">>(
    path: P,
    body: Body<Operation<P, "put">>,
    options: Names = {},
  ): Promise<Answer<Operation<P, "put">>> {
    return this.request("PUT", this.address(path, options), { body, key: commandId() });
  }

  remove<P extends PathFor<"delete">>(path: P, options: Names = {}): Promise<Answer<Operation<P, "delete">>> {
    return this.request("DELETE", this.address(path, options), { key: commandId() });
  }

  address(path: string, names: Names = {}, query: object = {}): URL {
    const filled = path
      .replace("{id}", encodeURIComponent(names.id ?? ""))
      .replace("{name}", encodeURIComponent(names.name ?? ""));
    const url = new URL(`v1${filled}`, this.base);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
    return url;
  }

  headers(more: Record<string, string> = {}): Record<string, string> {
    return this.token === null ? more : { authorization: `Bearer ${this.token}`, ...more };
  }

  async request<A>(
    method: string,
    url: URL,
    { body, key, signal }: { body?: unknown; key?: string; signal?: AbortSignal } = {},
  ): Promise<A> {
    const headers = this.headers({
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(key === undefined ? {} : { "idempotency-key": key }),
    });
    let response: Response;
    try {
      response = await fetch(url, { method, headers, body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Problem(0, { code: "unreachable", detail: "The relay does not answer", next: "It is tried again by itself." });
    }
    return (await this.read(response)) as A;
  }

  /** Return the document in a response, or throw the problem in it. */
  async read(response: Response): Promise<unknown> {
    let document: unknown = null;
    try {
      document = await response.json();
    } catch {
      document = {};
    }
    if (response.ok) return document;
    const problem = new Problem(response.status, (document ?? {}) as Record<string, unknown>);
    if (problem.status === 401 && this.token !== null) this.onSignedOut(problem);
    throw problem;
  }
}
