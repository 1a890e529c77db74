/** Prints how long the start of the server and the body of a test take, also while `Date` stands still. */
export class Stopwatch {
  #since = performance.now();

  print(part) {
    console.log(`stopwatch ${part} ${((performance.now() - this.#since) / 1000).toFixed(6)}`);
    this.#since = performance.now();
  }
}
