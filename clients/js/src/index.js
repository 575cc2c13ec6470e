/** The public face of the client. */

export { Budget } from "./budget.js";
export { Client } from "./client.js";
export { BlindsightError, PrivacyError, UpdateLost, UpdateWaiting } from "./errors.js";
export { encode } from "./features.js";
export { predict } from "./glm.js";
export { discreteLaplace, roundedGaussian } from "./noise.js";
export { checkTask } from "./task.js";
export { clientUpdate } from "./update.js";
export { Wallet } from "./wallet.js";
