// The slot of a key in a cluster: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384.

const SLOTS = 16_384;
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc & 0xffff;
});

/** `key` is a string or a Buffer. */
export function slotOf(key) {
  const bytes = Buffer.from(key);
  const open = bytes.indexOf("{");
  const close = open < 0 ? -1 : bytes.indexOf("}", open + 1);
  const hashed = close > open + 1 ? bytes.subarray(open + 1, close) : bytes;
  let crc = 0;
  for (const byte of hashed) crc = ((crc << 8) ^ TABLE[(crc >> 8) ^ byte]) & 0xffff;
  return crc % SLOTS;
}
