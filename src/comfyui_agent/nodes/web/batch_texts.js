/** The texts of the panel, made from the summaries that ComfyUI sends. */

const BADGES = {
  pending: ["○", "Pending"],
  active: ["◐", "Rendering"],
  collecting: ["◐", "Rendering"],
  complete: ["●", "Done"],
  cancelled: ["△", "Cancelled"],
  expired: ["△", "Expired"],
};
const ENDED = ["complete", "cancelled", "expired"];
const MOST_REASONS = 8;
const MOST_MEMBERS = 3;
const LONGEST_VALUE = 40;

export function isEnded(batch) {
  return ENDED.includes(batch.state);
}

/** The symbol and the word for the state of a batch. */
export function badge(batch) {
  const needsAttention = batch.state === "complete" && (batch.failed > 0 || Boolean(batch.reason));
  const known = BADGES[batch.state] ?? ["○", String(batch.state)];
  const [mark, word] = needsAttention ? ["△", "Needs attention"] : known;
  return { mark, word };
}

export function progress(batch) {
  return `${count(batch.completed_count)} of ${count(batch.total)}`;
}

export function attention(failed) {
  return failed === 1 ? "1 needs attention" : `${count(failed)} need attention`;
}

/** How many members are neither done nor failed. */
export function remaining(batch) {
  return Math.max(0, batch.total - batch.completed_count - batch.failed);
}

/** One sentence about all batches that are shown. */
export function sentence(batches) {
  const running = batches.filter((batch) => !isEnded(batch));
  const counted = running.length ? running : batches;
  const sum = (key) => counted.reduce((total, batch) => total + batch[key], 0);
  const done = `${count(sum("completed_count"))} of ${count(sum("total"))} done`;
  const failed = sum("failed");
  const kind = running.length ? "batches" : "batches that have ended";
  const which = counted.length === 1 ? "" : ` in ${counted.length} ${kind}`;
  return `E3: ${done}${which}${failed ? `, ${attention(failed)}` : ""}`;
}

/** The announcement of the end of a batch for screen readers. */
export function ending(batch) {
  const failed = batch.failed ? `, ${attention(batch.failed)}` : "";
  return `Batch ${batch.batch_name}: ${badge(batch).word}, ${progress(batch)} done${failed}`;
}

/** The result of a cancel. */
export function cancelled(answer) {
  const stuck = answer.not_stopped ?? [];
  if (!stuck.length) return sentenceOf(answer.message);
  const reasons = [...new Set(stuck.map((each) => each.reason))].join("; ");
  const which = stuck.length === 1 ? "1 could not be stopped" : `${count(stuck.length)} could not be stopped`;
  return `${sentenceOf(answer.message)} ${which}: ${reasons}.`;
}

/** Why members failed, one line for each different reason. */
export function reasons(members) {
  const byReason = new Map();
  for (const member of members.filter((each) => each.state === "failed")) {
    const reason = member.reason || "no reason is known";
    byReason.set(reason, [...(byReason.get(reason) ?? []), member]);
  }
  const lines = [...byReason].map(([reason, failed]) => `${who(failed)}: ${reason}`);
  const left = lines.length - MOST_REASONS;
  return left > 0 ? [...lines.slice(0, MOST_REASONS), `and ${left} more reasons`] : lines;
}

function who(members) {
  const named = members.slice(0, MOST_MEMBERS).map((member) => {
    const values = Object.entries(member.values ?? {}).map(([name, value]) => `${name} ${shortened(value)}`);
    return `No. ${member.index + 1}${values.length ? ` (${values.join(", ")})` : ""}`;
  });
  const left = members.length - named.length;
  return named.join("; ") + (left > 0 ? ` and ${count(left)} more` : "");
}

function shortened(value) {
  const text = String(value);
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE - 1)}…` : text;
}

function sentenceOf(message) {
  const text = String(message || "It is cancelled").replace(/[.\s]+$/, "");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function count(number) {
  return Number(number).toLocaleString("en");
}
