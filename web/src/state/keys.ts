/** Keys of the page. Nothing happens while somebody types, or with a modifier held. */
export interface RowKeys {
  move: (by: number) => void;
}

let rows: RowKeys | null = null;
let prefix = 0;

/** Let j and k move in a list; returns how to stop. */
export function rowKeys(keys: RowKeys): () => void {
  rows = keys;
  return () => {
    if (rows === keys) rows = null;
  };
}

export const KEYS: readonly [string, string][] = [
  ["⌘K or Ctrl-K", "command palette"],
  ["j, k", "next, previous line"],
  ["Enter", "open the line"],
  ["Esc", "close what is open"],
  ["/", "filter"],
  ["g then n h c a i d l b t", "go to Now, Handoffs, Chains, Agents, Inbox, Dead letters, Log, deBrief, Team"],
  ["t", "light, dark or as the system"],
  ["u", "times: relative, local, UTC"],
  ["?", "this list"],
];

export interface PageKeys {
  palette: () => void;
  help: () => void;
  theme: () => void;
  times: () => void;
  close: () => void;
  go: (key: string) => boolean;
}

export function install(page: PageKeys): () => void {
  const listen = (event: KeyboardEvent) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      page.palette();
      return;
    }
    const target = event.target as HTMLElement | null;
    const typing = target?.closest("input, textarea, select, [contenteditable]") != null;
    if (event.key === "Escape" && document.querySelector("dialog[open]") === null) {
      if (typing) target!.blur();
      else page.close();
      return;
    }
    if (typing || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
    if (performance.now() - prefix < 1_500 && page.go(event.key)) {
      prefix = 0;
      event.preventDefault();
      return;
    }
    prefix = 0;
    switch (event.key) {
      case "g":
        prefix = performance.now();
        break;
      case "j":
        rows?.move(1);
        break;
      case "k":
        rows?.move(-1);
        break;
      case "/":
        event.preventDefault();
        document.getElementById("search")?.focus();
        break;
      case "t":
        page.theme();
        break;
      case "u":
        page.times();
        break;
      case "?":
        page.help();
        break;
      default:
        return;
    }
  };
  document.addEventListener("keydown", listen);
  return () => document.removeEventListener("keydown", listen);
}
