/** Pictures of every view, made outside of the repository, for somebody to look at. */
import { expect, test } from "vitest";
import { DESKTOP, goTo, launch, live, PHONE, Relay, row, SHOTS, signIn, visit } from "./stage.ts";
import { populate } from "./team.ts";

test("every view can be looked at, on a desktop, in the dark and on a phone", async () => {
  const relay = await Relay.start();
  const browser = await launch();
    try {
    const told = await populate(relay);
    const desktop = await signIn(browser, relay, relay.operator, DESKTOP);
    await live(desktop.page);
    await row(desktop.page, "Which app version").waitFor();
    const shot = async (page: typeof desktop.page, name: string) => page.screenshot({ path: `${SHOTS}/${name}.png` });
    await shot(desktop.page, "now");
    for (const [name, at, shown] of [
      ["handoff", `#/now?open=${told.blocked.id}`, ".callout.ask"],
      ["timeline", `#/now?open=${told.retried.id}&zoom=timeline`, ".lanes"],
      ["handoff-log", `#/now?open=${told.retried.id}&zoom=log`, ".raw .entry"],
      ["dead-letter", `#/dead?open=${told.dead.id}`, ".callout.bad"],
      ["chain", `#/chains/${told.broken}`, ".seg.broken"],
      ["chain-graph", `#/chains/${told.broken}?as=graph`, ".vertex.bad"],
      ["fan-out", `#/chains/${told.group}?as=graph`, ".vertex.folded"],
      ["chains", "#/chains", ".legs li"],
      ["agents", "#/agents", "table.grid tbody tr"],
      ["agent", "#/agents/code_agent?form=bug_triage", ".handoff-form"],
      ["inbox", "#/inbox", ".item"],
      ["log", "#/log", ".entry"],
      ["debrief", "#/debrief", ".lead"],
      ["team", "#/team", "table.grid tbody tr"],
      ["handoffs", "#/handoffs", "a.row"],
    ] as const) {
      await goTo(desktop.page, at);
      await desktop.page.locator(shown).first().waitFor();
      await shot(desktop.page, name);
    }
    const dark = await signIn(browser, relay, relay.operator, { ...DESKTOP, colorScheme: "dark" }, `#/now?open=${told.blocked.id}`);
    await row(dark.page, "Which app version").waitFor();
    await dark.page.locator(".callout.ask").waitFor();
    await shot(dark.page, "dark");
    const phone = await signIn(browser, relay, relay.operator, PHONE);
    await row(phone.page, "Which app version").waitFor();
    await shot(phone.page, "phone");
    await goTo(phone.page, `#/now?open=${told.blocked.id}`);
    await phone.page.locator(".callout.ask").waitFor();
    await shot(phone.page, "phone-handoff");
    const stranger = await visit(browser, `${relay.url}/`);
    await shot(stranger.page, "sign-in");
    expect([...desktop.complaints, ...dark.complaints, ...phone.complaints, ...stranger.complaints]).toEqual([]);
  } finally {
    await browser.close();
    await relay.stop();
  }
});
