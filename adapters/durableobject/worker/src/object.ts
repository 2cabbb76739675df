import { DurableObject } from "cloudflare:workers";

import { SweepAlarm } from "./alarm";
import type { Call, CallReply } from "./call";
import type { Env } from "./env";
import { Records } from "./records";
import type { SemaphoreCall } from "./request";
import type { Row } from "./row";
import { Leases } from "./semaphore";
import type { Lease, PermitReply } from "./semaphore";
import { shardStub } from "./shard";

/** Calls for the keys of one object. */
export interface Batch<C> {
  calls: C[];
  /** Keys that another shard had before, and which one. */
  before: [k: string, shard: number][];
}

/** Rows that one sweep removes. */
const SWEEP_ROWS = 1000;

/**
 * LimiterObject decides about the keys of one shard. A reply is sent after its writes are stored
 * (output gate), so a restart grants nothing a second time. Between reading the state of a key and
 * writing it there is no await, because another call could run there.
 */
export class LimiterObject extends DurableObject<Env> {
  protected readonly alarms: SweepAlarm;
  private readonly records: Records;
  private readonly leases: Leases;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.alarms = new SweepAlarm(ctx.storage);
    this.records = new Records(ctx.storage.sql, (micros) => this.alarms.plan(Math.ceil(micros / 1000)));
    this.leases = new Leases(ctx.storage.sql, (millis) => this.alarms.plan(millis));
    void ctx.blockConcurrencyWhile(() => this.alarms.load());
  }

  /** limit executes calls of limiters. A reply is null if its call could not be decided. */
  async limit(batch: Batch<Call>): Promise<(CallReply | null)[]> {
    const { copies, failed } = await this.copyRows(batch);
    const hasFailed = (call: Call) => call.some((part) => failed.has(part.k));
    return decide(batch.calls, hasFailed, (calls) => this.records.execute(calls, copies, this.now(batch)));
  }

  /** semaphore acquires, renews and releases permits. A reply is null if its call could not be decided. */
  async semaphore(batch: Batch<SemaphoreCall>): Promise<(PermitReply | null)[]> {
    const { copies, failed } = await this.copyLeases(batch);
    const hasFailed = (call: SemaphoreCall) => failed.has(call.k);
    return decide(batch.calls, hasFailed, (calls) => this.leases.execute(calls, copies, Math.floor(this.now(batch) / 1000)));
  }

  /** handOverRows returns the rows of keys that now belong to another object. */
  handOverRows(keys: string[]): Row[] {
    return this.records.handOver(keys);
  }

  /** handOverLeases returns the leases of keys that now belong to another object. */
  handOverLeases(keys: string[]): Lease[] {
    return this.leases.load(keys);
  }

  override async alarm(): Promise<void> {
    this.alarms.fired();
    this.sweep(Date.now() * 1000);
  }

  /** now returns the time for a batch in microseconds since 1970. The clock has whole milliseconds. */
  protected now(_batch: object): number {
    return Date.now() * 1000;
  }

  /** sweep removes rows that have no effect, and plans the next sweep unless all are removed. */
  protected sweep(now: number): void {
    const records = this.records.sweep(now, SWEEP_ROWS);
    const leases = this.leases.sweep(Math.floor(now / 1000), SWEEP_ROWS);
    if (records.removed >= SWEEP_ROWS || leases.removed >= SWEEP_ROWS) {
      this.alarms.runAgain();
      return;
    }
    if (records.next !== null) {
      this.alarms.plan(Math.ceil(records.next / 1000));
    }
    if (leases.next !== null) {
      this.alarms.plan(leases.next);
    }
  }

  private async copyRows(batch: Batch<unknown>): Promise<Copied<Row | undefined>> {
    const copied = await this.copyFrom(batch, (keys) => this.records.unsettled(keys), (shard, keys) => shardStub(this.env, shard).handOverRows(keys));
    return { failed: copied.failed, copies: new Map([...copied.copies].map(([key, rows]) => [key, rows[0]])) };
  }

  private copyLeases(batch: Batch<unknown>): Promise<Copied<Lease[]>> {
    return this.copyFrom(batch, (keys) => this.leases.unsettled(keys), (shard, keys) => shardStub(this.env, shard).handOverLeases(keys));
  }

  /** copyFrom asks the objects that had keys before for what they know of the unsettled ones. */
  private async copyFrom<R extends { k: string }>(
    batch: Batch<unknown>,
    unsettled: (keys: string[]) => string[],
    handOver: (shard: number, keys: string[]) => Promise<R[]>,
  ): Promise<Copied<R[]>> {
    const copied: Copied<R[]> = { copies: new Map(), failed: new Set() };
    const shardOf = new Map(batch.before);
    if (shardOf.size === 0) {
      return copied;
    }
    const groups = Map.groupBy(unsettled([...shardOf.keys()]), (key) => shardOf.get(key) as number);
    await Promise.all(
      [...groups].map(async ([shard, keys]) => {
        try {
          const rows = Map.groupBy(await handOver(shard, keys), (row) => row.k);
          keys.forEach((key) => copied.copies.set(key, rows.get(key) ?? []));
        } catch (error) {
          console.error(`shard ${shard} does not hand over its keys:`, error);
          keys.forEach((key) => copied.failed.add(key));
        }
      }),
    );
    return copied;
  }
}

interface Copied<T> {
  copies: Map<string, T>;
  /** Keys whose object did not answer. */
  failed: Set<string>;
}

/** decide executes the calls that have not failed, and returns null for the others. */
function decide<C, R>(calls: C[], hasFailed: (call: C) => boolean, execute: (calls: C[]) => R[]): (R | null)[] {
  const replies = execute(calls.filter((call) => !hasFailed(call)));
  let next = 0;
  return calls.map((call) => (hasFailed(call) ? null : (replies[next++] ?? null)));
}
