/**
 * Return `after`, with every part that equals its counterpart in `before` replaced by that one.
 *
 * Views compare by identity: what has not changed is not drawn again, so a chart keeps the value under the pointer.
 * Items of a list that have an `id` are compared with the item of the same `id`, others by their place.
 */
export function reconcile<T>(before: unknown, after: T): T {
  if (Object.is(before, after)) return after;
  if (Array.isArray(before) && Array.isArray(after)) {
    const known = new Map<unknown, unknown>(before.map((item, place) => [keyOf(item, place), item]));
    const merged = after.map((item, place) => reconcile(known.get(keyOf(item, place)), item));
    return isSame(before, merged) ? (before as T) : (merged as T);
  }
  if (isRecord(before) && isRecord(after)) {
    const merged = Object.fromEntries(Object.entries(after).map(([name, item]) => [name, reconcile(before[name], item)]));
    const names = Object.keys(merged);
    const isEqual = names.length === Object.keys(before).length && names.every((name) => merged[name] === before[name]);
    return isEqual ? (before as T) : (merged as T);
  }
  return after;
}

function keyOf(item: unknown, place: number): unknown {
  return isRecord(item) && "id" in item ? item["id"] : place;
}

function isSame(before: unknown[], after: unknown[]): boolean {
  return before.length === after.length && after.every((item, place) => item === before[place]);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
