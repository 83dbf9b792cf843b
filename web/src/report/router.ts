/** Views by the part of the address after `#`, so that links and the back button work from a file, too. */
import { signal } from "@preact/signals";

export interface Route {
  view: string; // "", "task", "run", "table", "compare", "playground"
  id: string | null;
}

/** The address of a view. */
export function href(view: string, id?: string): string {
  return id === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(id)}`;
}

/** Split an address; an address that is not one of ours is the overview. */
export function parseHash(hash: string): Route {
  const [, view = "", id] = /^#\/([a-z]*)(?:\/(.+))?$/.exec(hash) ?? [];
  return { view, id: id === undefined ? null : decode(id) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray % is a part of the name
  }
}

export const route = signal<Route>(parseHash(location.hash));

const positions = new Map<string, number>(); // how far each view was scrolled
let current = location.hash;
let isLink = false; // whether a link was followed, and not the back button

/** Follow the address. A link starts at the top of the new view; the back button returns to where the reader was. */
export function startRouter(): void {
  history.scrollRestoration = "manual";
  addEventListener("click", (event) => {
    isLink = event.target instanceof Element && event.target.closest('a[href^="#/"]') !== null;
  });
  addEventListener("scroll", () => positions.set(current, scrollY), { passive: true });
  addEventListener("hashchange", () => {
    const followed = isLink;
    isLink = false;
    current = location.hash;
    const position = followed ? 0 : (positions.get(current) ?? 0);
    route.value = parseHash(current);
    requestAnimationFrame(() => {
      scrollTo(0, position);
      if (followed) document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    });
  });
}
