import type { Packed } from "./data";

/** The bytes of a base64 text. */
function decode(text: string): ArrayBuffer {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

/** The numbers of a packed tensor in row-major order; bytes become the numbers they stand for. */
export function unpack(packed: Packed): Float32Array {
  const buffer = decode(packed.data);
  if (packed.dtype === "float32") return new Float32Array(buffer);
  if (packed.dtype === "int32") return Float32Array.from(new Int32Array(buffer));
  const scale = packed.scale ?? 1;
  return Float32Array.from(new Uint8Array(buffer), (byte) => scale * (byte - 128));
}
