/** Certified lengths in words and as numbers to sort by. */
import type { Certified } from "../data";
import { count } from "./format";

/** A length, or Infinity if every length is certified; null without a certificate. */
export function certifiedValue(certified: Certified | null): number | null {
  return certified === null ? null : (certified.exact ?? Infinity);
}

/** "53", "every length", "39 exact, 35 in float32" where arithmetic matters, or a dash without a certificate. */
export function certifiedText(certified: Certified | null): string {
  if (certified === null) return "–";
  const { exact, float32 } = certified;
  return exact === float32 ? lengthText(exact) : `${lengthText(exact)} exact, ${lengthText(float32)} in float32`;
}

/** A length; null is every length. */
function lengthText(length: number | null): string {
  return length === null ? "every length" : count(length);
}
