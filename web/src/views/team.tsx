/** The team: who may come in, by which rules, what fires and where notices go. */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Problem, Schemas } from "../api/client.ts";
import { absolute } from "../state/clock.ts";
import { acts, api, operates, session } from "../state/session.ts";
import { asProblem, Command, Dialog, Empty, Refusal, say, Time, useLoad } from "../ui/bits.tsx";
import { Json } from "../ui/json.tsx";
import { Line } from "../ui/text.tsx";

export function TeamView(): JSX.Element {
  return (
    <section class="view team" aria-labelledby="team">
      <h1 id="team">
        Team <Line text={session.value?.team ?? ""} />
      </h1>
      <p>
        You are <b><Line text={session.value?.agent ?? ""} /></b>, {session.value?.role}
        {session.value?.expires_at && (
          <>
            , until <Time at={session.value.expires_at} />
          </>
        )}
        .
      </p>
      {operates.value && <ShareLink />}
      {acts.value && <Tokens />}
      {operates.value && <Invitations />}
      <Policy />
      {(acts.value || session.value?.payloads) && <Triggers />}
      {acts.value && <Subscriptions />}
      {operates.value && <Refusals />}
    </section>
  );
}

function Part({ title, problem, empty, children }: { title: string; problem: Problem | null; empty?: string | false; children: ComponentChildren }): JSX.Element {
  return (
    <section class="part" aria-label={title}>
      <h2>{title}</h2>
      <Refusal problem={problem} />
      {empty && <Empty>{empty}</Empty>}
      {children}
    </section>
  );
}

/** A confirmation for what ends something. */
function Confirm({ title, leads, command, onConfirm, onClose }: { title: string; leads: string; command: string; onConfirm: () => Promise<unknown>; onClose: () => void }): JSX.Element {
  const [problem, setProblem] = useState<Problem | null>(null);
  return (
    <Dialog title={title} onClose={onClose}>
      <p class="leads">{leads}</p>
      <Command text={command} />
      <Refusal problem={problem} />
      <div class="buttons">
        <button type="button" autofocus onClick={onClose}>
          Back
        </button>
        <button
          type="button"
          class="danger"
          onClick={() =>
            void onConfirm().then(
              () => {
                say(`${title}: done.`);
                onClose();
              },
              (error: unknown) => setProblem(asProblem(error)),
            )
          }
        >
          {title}
        </button>
      </div>
    </Dialog>
  );
}

type Link = Schemas["LinkAnswer"];

/** A link for looking on, which expires. */
function ShareLink(): JSX.Element {
  const [expires, setExpires] = useState("24h");
  const [payloads, setPayloads] = useState(false);
  const [link, setLink] = useState<Link | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const make = async () => {
    try {
      const made = await api.value.post("/links", { kind: "view", expires_in: expires, payloads });
      setLink(made);
      setProblem(null);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <Part title="Read-only link" problem={problem}>
      <p class="quiet">Whoever opens it looks on and cannot act. It ends by itself.</p>
      <form
        class="inline"
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <label>
          Good for{" "}
          <select value={expires} onChange={(event) => setExpires(event.currentTarget.value)}>
            {["1h", "8h", "24h", "7d"].map((each) => (
              <option key={each} value={each} selected={each === expires}>
                {each}
              </option>
            ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={payloads} onChange={(event) => setPayloads(event.currentTarget.checked)} /> shows payloads too
        </label>
        <button type="submit">Make a link</button>
      </form>
      {link && (
        <>
          <Command text={new URL(link.path.replace(/^\//, ""), new URL(".", document.baseURI)).href} />
          <p class="quiet">
            It is shown once. It ends <Time at={link.expires_at} />.
          </p>
        </>
      )}
    </Part>
  );
}

/** Every page of the list. */
async function allTokens(signal: AbortSignal) {
  const tokens: Schemas["TokenView"][] = [];
  for (let after: string | undefined; ; ) {
    const page = await api.value.get("/tokens", { query: { limit: 500, ...(after ? { after } : {}) }, signal });
    tokens.push(...page.tokens);
    if (!page.after) return { tokens };
    after = page.after;
  }
}

function Tokens(): JSX.Element {
  const { value, problem, again } = useLoad("tokens", allTokens);
  const [ending, setEnding] = useState<string | null>(null);
  const [agent, setAgent] = useState("");
  const [role, setRole] = useState("agent");
  const [made, setMade] = useState<string | null>(null);
  const [refused, setRefused] = useState<Problem | null>(null);
  const make = async () => {
    try {
      const answer = await api.value.post("/tokens", { agent, role: role as "agent" });
      setMade(answer.token ?? null);
      setRefused(null);
      again();
    } catch (error) {
      setRefused(asProblem(error));
    }
  };
  return (
    <Part title="Tokens" problem={problem ?? refused} empty={value?.tokens.length === 0 && "No tokens."}>
      {operates.value && (
        <form
          class="inline"
          onSubmit={(event) => {
            event.preventDefault();
            if (agent) void make();
          }}
        >
          <label>
            Agent <input type="text" value={agent} onInput={(event) => setAgent(event.currentTarget.value)} />
          </label>
          <label>
            Role{" "}
            <select value={role} onChange={(event) => setRole(event.currentTarget.value)}>
              {["agent", "observer", "operator"].map((each) => (
                <option key={each} value={each} selected={each === role}>
                  {each}
                </option>
              ))}
            </select>
          </label>
          <button type="submit" disabled={!agent}>
            Make a token
          </button>
        </form>
      )}
      {made && (
        <>
          <Command text={made} />
          <p class="quiet">It is shown once.</p>
        </>
      )}
      <table class="grid">
        <thead>
          <tr>
            <th scope="col">Agent</th>
            <th scope="col">Role</th>
            <th scope="col">Label</th>
            <th scope="col">Made</th>
            {acts.value && <th scope="col">End</th>}
          </tr>
        </thead>
        <tbody>
          {value?.tokens.map((token) => (
            <tr key={token.token_id}>
              <th scope="row">
                <Line text={token.agent} most={60} />
              </th>
              <td>{token.role}</td>
              <td>{token.label ? <Line text={token.label} most={60} /> : "–"}</td>
              <td>
                <Time at={token.created_at} />
              </td>
              {acts.value && (
                <td>
                  <button type="button" class="small danger quiet" onClick={() => setEnding(token.token_id)} aria-label={`Revoke the token of ${token.agent}, made ${absolute(token.created_at, false)}`}>
                    Revoke
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {ending && (
        <Confirm
          title="Revoke the token"
          leads="It ends at once, on open connections too."
          command={`curl -X DELETE -H "Authorization: Bearer …" …/v1/tokens/${ending}`}
          onConfirm={async () => {
            await api.value.remove("/tokens/{name}", { name: ending });
            again();
          }}
          onClose={() => setEnding(null)}
        />
      )}
    </Part>
  );
}

function Invitations(): JSX.Element {
  const { value, problem, again } = useLoad("invitations", (signal) => api.value.get("/invitations", { signal }));
  const [agent, setAgent] = useState("");
  const [made, setMade] = useState<string | null>(null);
  const [refused, setRefused] = useState<Problem | null>(null);
  const [ending, setEnding] = useState<string | null>(null);
  const make = async () => {
    try {
      const answer = await api.value.post("/invitations", agent ? { agent } : {});
      setMade(answer.invitation ?? null);
      setRefused(null);
      again();
    } catch (error) {
      setRefused(asProblem(error));
    }
  };
  return (
    <Part title="Invitations" problem={problem ?? refused} empty={value?.invitations.length === 0 && "No open invitation."}>
      <form
        class="inline"
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <label>
          For <input type="text" placeholder="any name" value={agent} onInput={(event) => setAgent(event.currentTarget.value)} />
        </label>
        <button type="submit">Invite</button>
      </form>
      {made && <Command text={`nodrop join ${made}`} />}
      <ul class="plain">
        {value?.invitations.map((each) => (
          <li key={each.invitation_id} class="between">
            <span>
              {each.agent ? <Line text={each.agent} /> : "any name"} · {each.role} · ends <Time at={each.expires_at} />
            </span>
            <button type="button" class="small danger quiet" onClick={() => setEnding(each.invitation_id)}>
              Take back
            </button>
          </li>
        ))}
      </ul>
      {ending && (
        <Confirm
          title="Take the invitation back"
          leads="Nobody can join with it any more."
          command={`curl -X DELETE -H "Authorization: Bearer …" …/v1/invitations/${ending}`}
          onConfirm={async () => {
            await api.value.remove("/invitations/{name}", { name: ending });
            again();
          }}
          onClose={() => setEnding(null)}
        />
      )}
    </Part>
  );
}

function Policy(): JSX.Element {
  const { value, problem } = useLoad("policy", (signal) => api.value.get("/policy", { signal }));
  return (
    <Part title="Policy" problem={problem}>
      {value && (
        <>
          <p>
            Signatures are <b>{value.signatures}</b>. {value.allow.length === 0 ? "Everybody may hand everything to everybody." : "Only this may be handed off:"}
          </p>
          <ul class="plain">
            {value.allow.map((rule, i) => (
              <li key={i}>
                <Line text={`${rule.from} → ${rule.to}: ${rule.capability}`} />
              </li>
            ))}
          </ul>
          <Command text="nodrop policy" />
        </>
      )}
    </Part>
  );
}

function Triggers(): JSX.Element {
  const { value, problem } = useLoad("triggers", (signal) => api.value.get("/triggers", { signal }));
  return (
    <Part title="Triggers" problem={problem} empty={value?.triggers.length === 0 && "No rule hands anything off by itself."}>
      <ul class="plain">
        {value?.triggers.map((rule) => (
          <li key={rule.name}>
            <b>
              <Line text={rule.name} />
            </b>{" "}
            on <code>{rule.on}</code> when <code>{rule.when}</code>
            <Json value={rule.offer} label={`offer of ${rule.name}`} />
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Subscriptions(): JSX.Element {
  const { value, problem } = useLoad("outlets", async (signal) => {
    const [{ outlets }, { topics }] = await Promise.all([api.value.get("/outlets", { signal }), api.value.get("/topics", { signal })]);
    return { outlets, topics };
  });
  return (
    <Part title="Subscriptions" problem={problem} empty={value !== null && value.outlets.length + value.topics.length === 0 && "Nothing is sent on, and no topic is followed."}>
      <ul class="plain">
        {value?.outlets.map((outlet) => (
          <li key={outlet.name}>
            <b>
              <Line text={outlet.name} />
            </b>{" "}
            {outlet.kind} · {outlet.sent} sent{outlet.failing ? <span class="bad"> · failing: <Line text={outlet.failing} most={200} /></span> : ""}
          </li>
        ))}
        {value?.topics.map((topic) => (
          <li key={topic}>
            topic <Line text={topic} />
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Refusals(): JSX.Element {
  const { value, problem } = useLoad("refusals", (signal) => api.value.get("/refusals", { query: { limit: 50 }, signal }));
  return (
    <Part title="Refused lately" problem={problem} empty={value?.refusals.length === 0 && "Nothing was refused for reasons of identity or authorization."}>
      <ul class="plain">
        {value?.refusals.map((each, i) => (
          <li key={i}>
            {each.count} × <code>{each.code}</code> {each.operation} by {each.actor ? <Line text={each.actor} /> : "nobody known"} · <Time at={each.last_at} /> · <Line text={each.detail} most={200} />
          </li>
        ))}
      </ul>
    </Part>
  );
}
