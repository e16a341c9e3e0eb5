import { render } from "@testing-library/preact";
import { expect, test } from "vitest";
import { fold, type Row } from "../src/state/rows.ts";
import { RowLine } from "../src/views/now.tsx";
import { entry, MINUTE, OFFERED, T0 } from "./entries.ts";

const shown = (row: Row): string => render(<RowLine row={{ ...row, due: Date.now() + MINUTE }} gone={false} />).container.querySelector(".sub")!.textContent!;

test("a row says its place in the queue of who has it", () => {
  const offered = fold(undefined, OFFERED)!;
  expect(shown(offered)).toMatch(/^code owes acceptance/);
  const queued = fold(offered, entry("queued", 2, { position: 2, next_update_at: T0 + 30 * MINUTE }))!;
  expect(shown({ ...queued, queued: { position: 2, of: 5 } })).toMatch(/^code has it queued 2 of 5/);
});
