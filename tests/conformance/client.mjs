// A client of the JavaScript SDK, at the agent of `agent.py`: node client.mjs ADDRESS
// Says what it saw, one line of JSON; anything that is not as it should be ends it with an error.
import assert from "node:assert/strict";
import { Role, taskStateToJSON, verifyAgentCardSignature } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { importJWK } from "jose";

const address = `${process.argv[2]}/`; // with the slash, without which the SDK looks beside it
const seen = {};
console.debug = console.warn = () => {}; // the SDK tells of every signature that does not hold; some must not

async function verified(card, alg) {
  const set = await (await fetch(new URL("/.well-known/jwks.json", address))).json();
  const verify = verifyAgentCardSignature(async (kid) => {
    const key = set.keys.find((known) => known.kid === kid && known.alg === alg);
    if (key === undefined) throw new Error("not a key we look for");
    return importJWK(key, alg);
  });
  await verify(card);
  await assert.rejects(verify({ ...card, description: "somebody else's words" }));
}

function message(messageId, text, more = {}) {
  const part = { content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" };
  return { messageId, contextId: "", taskId: "", role: Role.ROLE_USER, parts: [part], metadata: undefined, extensions: [], referenceTaskIds: [], ...more };
}

function request(sent) {
  return { tenant: "", message: sent, configuration: undefined, metadata: undefined };
}

const state = (task) => taskStateToJSON(task.status.state);
const resolver = new DefaultAgentCardResolver();
const card = await resolver.resolve(address);
for (const alg of ["EdDSA", "ES256"]) await verified(card, alg);
seen.verified = ["EdDSA", "ES256"];

for (const transport of [new JsonRpcTransportFactory(), new RestTransportFactory()]) {
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    preferredTransports: [transport.protocolName],
  });
  const client = await new ClientFactory(options).createFromUrl(address);

  const done = await client.sendMessage(request(message("tck-artifact-text-js", "hello")));
  const task = done.payload?.value ?? done;
  assert.equal(state(task), "TASK_STATE_COMPLETED");
  assert.equal(task.artifacts[0].parts[0].content.value, "Generated text content");
  assert.equal(state(await client.getTask({ tenant: "", id: task.id })), "TASK_STATE_COMPLETED");

  const told = [];
  for await (const event of client.sendMessageStream(request(message("tck-stream-001-js", "hello")))) {
    told.push(event.payload?.$case ?? event.kind);
  }
  assert.equal(told[0], "task");
  assert.ok(told.includes("artifactUpdate"), told.join());

  const asked = await client.sendMessage(request(message("tck-input-required-js", "hello")));
  const waiting = asked.payload?.value ?? asked;
  assert.equal(state(waiting), "TASK_STATE_INPUT_REQUIRED");
  const answer = await client.sendMessage(request(message("m2", "here it is", { taskId: waiting.id })));
  assert.equal(state(answer.payload?.value ?? answer), "TASK_STATE_COMPLETED");

  await assert.rejects(client.getTask({ tenant: "", id: "no-such-task" }));
  seen[transport.protocolName] = told;
}
console.log(JSON.stringify(seen));
