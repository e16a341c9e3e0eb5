/** The page around the views: bar, navigation, the handoff beside the list, keys. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { inboxCount, line, summary } from "./state/board.ts";
import { now } from "./state/clock.ts";
import { install, KEYS } from "./state/keys.ts";
import { next, THEMES, theme, TIMES, times } from "./state/prefs.ts";
import { address, go, open, opened, place } from "./state/route.ts";
import { acts, redeem, codeInAddress, session, signingIn, signOut } from "./state/session.ts";
import { Dialog, Said, Time } from "./ui/bits.tsx";
import { Palette } from "./ui/palette.tsx";
import { Line, plural } from "./ui/text.tsx";
import { AgentsView, AgentView } from "./views/agents.tsx";
import { ChainsView, ChainView } from "./views/chain.tsx";
import { DebriefView } from "./views/debrief.tsx";
import { HandoffPanel } from "./views/handoff.tsx";
import { DeadView, HandoffsView, InboxView } from "./views/lists.tsx";
import { LogView } from "./views/log.tsx";
import { NowView } from "./views/now.tsx";
import { SignIn } from "./views/signin.tsx";
import { TeamView } from "./views/team.tsx";

const VIEWS: readonly [string, string][] = [
  ["now", "Now"],
  ["handoffs", "Handoffs"],
  ["chains", "Chains"],
  ["agents", "Agents"],
  ["inbox", "Inbox"],
  ["dead", "Dead letters"],
  ["log", "Log"],
  ["debrief", "Debrief"],
  ["team", "Team"],
];
const GO: Record<string, string> = { n: "now", h: "handoffs", c: "chains", a: "agents", i: "inbox", d: "dead", l: "log", b: "debrief", t: "team" };
const THEME_WORDS = { system: "As the system", light: "Light", dark: "Dark" };
const TIME_WORDS = { relative: "Relative times", local: "Local times", utc: "UTC" };

const palette = signal(false);
const help = signal(false);

export function App(): JSX.Element {
  useEffect(() => {
    const sign = () => {
      const code = codeInAddress();
      if (code !== null) void redeem(code);
    };
    sign();
    window.addEventListener("hashchange", sign);
    return () => window.removeEventListener("hashchange", sign);
  }, []);
  useEffect(
    () =>
      install({
        palette: () => (palette.value = session.value !== null && !palette.value),
        help: () => (help.value = true),
        theme: () => (theme.value = next(THEMES, theme.value)),
        times: () => (times.value = next(TIMES, times.value)),
        close: () => opened.value && open(null),
        go: (key) => {
          const view = GO[key];
          if (view) go(address(view));
          return view !== undefined;
        },
      }),
    [],
  );
  if (session.value === null) return signingIn.value ? <main class="signin" aria-busy="true" /> : <SignIn />;
  const beside = opened.value !== null && !(place.value.view === "handoffs" && place.value.name !== null);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the list
      </a>
      <Bar />
      <div class={`body ${beside ? "with-panel" : ""}`}>
        <main id="main" tabIndex={-1}>
          <View />
        </main>
        {beside && (
          <aside class="panel" aria-label="The handoff beside the list">
            <HandoffPanel key={opened.value!} id={opened.value!} beside />
          </aside>
        )}
      </div>
      <Said />
      {palette.value && <Palette views={VIEWS} onClose={() => (palette.value = false)} onHelp={() => (help.value = true)} />}
      {help.value && (
        <Dialog title="Keys" onClose={() => (help.value = false)}>
          <dl class="facts keys">
            {KEYS.map(([keys, what]) => (
              <>
                <dt>
                  <kbd>{keys}</kbd>
                </dt>
                <dd>{what}</dd>
              </>
            ))}
          </dl>
          <div class="buttons">
            <button type="button" autofocus onClick={() => (help.value = false)}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function View(): JSX.Element {
  const { view, name } = place.value;
  switch (view) {
    case "now":
      return <NowView />;
    case "handoffs":
      return name === null ? <HandoffsView /> : <section class="view single"><HandoffPanel key={name} id={name} beside={false} /></section>;
    case "chains":
      return name === null ? <ChainsView /> : <ChainView key={name} id={name} />;
    case "agents":
      return name === null ? <AgentsView /> : <AgentView key={name} name={name} />;
    case "inbox":
      return <InboxView />;
    case "dead":
      return <DeadView />;
    case "log":
      return <LogView />;
    case "debrief":
      return <DebriefView />;
    case "team":
      return <TeamView />;
    default:
      return (
        <section class="view">
          <h1>No such view</h1>
          <p>
            <a href="#/now">Now</a> shows what is open.
          </p>
        </section>
      );
  }
}

function Bar(): JSX.Element {
  const who = session.value!;
  const counts: Record<string, number> = { inbox: inboxCount.value, dead: summary.value.dead };
  const { view } = place.value;
  return (
    <header class="bar">
      <div class="top">
        <a class="wordmark" href="#/now">
          Nodrop
        </a>
        <span class="quiet">
          <Line text={who.team} most={30} />
        </span>
        <Live />
        <span class="spring" />
        <button type="button" class="find" onClick={() => (palette.value = true)}>
          Find <kbd>{navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K"}</kbd>
        </button>
        <details class="menu">
          <summary aria-label={`Signed in as ${who.agent}, ${who.role}`}>
            <Line text={who.agent} most={24} />
            {!acts.value && <span class="readonly-mark"> read-only</span>}
          </summary>
          <div class="sheet">
            <p>
              <b>
                <Line text={who.agent} />
              </b>{" "}
              {who.role}
              {who.expires_at && (
                <>
                  {" "}
                  until <Time at={who.expires_at} />
                </>
              )}
            </p>
            <button type="button" onClick={() => (theme.value = next(THEMES, theme.value))}>
              {THEME_WORDS[theme.value]}
            </button>
            <button type="button" onClick={() => (times.value = next(TIMES, times.value))}>
              {TIME_WORDS[times.value]}
            </button>
            <button type="button" onClick={() => (help.value = true)}>
              Keys
            </button>
            <button type="button" onClick={() => signOut()}>
              Sign out
            </button>
          </div>
        </details>
      </div>
      <nav aria-label="Views">
        {VIEWS.filter(([key]) => acts.value || key !== "inbox").map(([key, name]) => (
          <a key={key} href={address(key)} aria-current={key === view ? "page" : undefined}>
            {name}
            {counts[key] ? <span class={`count ${key}`}> {counts[key]}</span> : null}
          </a>
        ))}
      </nav>
    </header>
  );
}

/** Whether what is on screen is what is so now. */
function Live(): JSX.Element {
  void now.value;
  const words = { live: "live", connecting: "connecting", broken: "not connected, trying again", paused: "paused" };
  return (
    <span class={`line ${line.value}`} role="status" title={`${plural(summary.value.open, "open handoff")}`}>
      <span aria-hidden="true">{line.value === "live" ? "●" : "○"}</span> {words[line.value]}
    </span>
  );
}
