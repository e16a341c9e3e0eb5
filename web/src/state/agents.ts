/** The agents of the team, read when a view needs them and again when they change. */
import { computed, signal } from "@preact/signals";
import type { Agent } from "../api/client.ts";
import { api } from "./session.ts";

export const agents = signal<readonly Agent[]>([]);
export const agentNames = computed(() => agents.value.map((agent) => agent.agent_id));

export async function readAgents(): Promise<readonly Agent[]> {
  const found: Agent[] = [];
  let after: string | undefined;
  do {
    const page = await api.value.get("/agents", { query: { limit: 500, ...(after ? { after } : {}) } });
    found.push(...page.agents);
    after = page.after ?? undefined;
  } while (after && found.length < 5_000);
  agents.value = found;
  return found;
}
