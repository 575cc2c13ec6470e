/** An error whose message says in one sentence what to do. `status` is the server's answer, where there was one. */
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

/** An update was paid for and will not be accepted, or its fate is unknown. */
export class UpdateLost extends BlindsightError {
  name = "UpdateLost";
}

/** An update was paid for and is in the outbox: `deliver`, or the next contribution, sends it. */
export class UpdateWaiting extends BlindsightError {
  name = "UpdateWaiting";
}

/** Sending this would break the privacy guarantee, so nothing was sent. */
export class PrivacyError extends BlindsightError {
  name = "PrivacyError";
}
