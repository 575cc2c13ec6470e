/** Something to put right: one sentence that says what. `status` is the server's answer, where there was one. */
export class BlindsightError extends Error {
  name = "BlindsightError";

  /**
   * @param {string} message
   * @param {{ status?: number, cause?: unknown }} [about]
   */
  constructor(message, { status, cause } = {}) {
    super(message, { cause });
    this.status = status;
  }
}

/** Sending this would break the promise of privacy, so nothing was sent. */
export class PrivacyError extends BlindsightError {
  name = "PrivacyError";
}
