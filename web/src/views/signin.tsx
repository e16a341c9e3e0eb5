/** Sign in: by a one-time link, or with a token. */
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { signInError, signingIn, signInWithToken } from "../state/session.ts";
import { Command } from "../ui/bits.tsx";

export function SignIn(): JSX.Element {
  const token = useSignal("");
  return (
    <main class="signin">
      <h1>Nodrop</h1>
      <p>Every handoff, who owes the next move, and by when.</p>
      {signInError.value && (
        <p class="refusal" role="alert">
          {signInError.value}
        </p>
      )}
      <h2>Sign in with a link</h2>
      <p>This prints a link that works once, and opens it:</p>
      <Command text="nodrop open" />
      <h2>Or with a token</h2>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void signInWithToken(token.value);
        }}
      >
        <label class="field">
          <span>Token</span>
          <input type="password" name="token" autocomplete="off" spellcheck={false} placeholder="nd_…" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={token.value.trim() === "" || signingIn.value}>
          Sign in
        </button>
      </form>
      <p class="quiet">It is kept for this tab alone, and is gone when the tab is closed.</p>
    </main>
  );
}
