/** Something to put right: one sentence that says what. `status` is the server's answer, where there was one. */
export class BlindsightError extends Error {
  name = "BlindsightError";

  /**
   * @param {string} message
   * @param {{ status?: number, reason?: string, cause?: unknown }} [about]
   */
  constructor(message, { status, reason, cause } = {}) {
    super(message, { cause });
    this.status = status;
    /** The service's word for why, where there was one. */
    this.reason = reason;
  }
}

/** An update was paid for and will not be taken, or nobody can tell. */
export class UpdateLost extends BlindsightError {
  name = "UpdateLost";
}

/** An update was paid for and is in the outbox: `deliver`, or the next contribution, sends it. */
export class UpdateWaiting extends BlindsightError {
  name = "UpdateWaiting";
}

/** Sending this would break the promise of privacy, so nothing was sent. */
export class PrivacyError extends BlindsightError {
  name = "PrivacyError";
}
