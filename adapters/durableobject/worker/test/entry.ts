// The Worker for tests. It takes the time from a header and has operations that only tests need.
// The production bundle contains nothing of this file.
import type { Call, CallReply } from "../src/call";
import type { Env } from "../src/env";
import { handle } from "../src/index";
import { LimiterObject as ProductionObject } from "../src/object";
import type { Batch } from "../src/object";
import type { Row } from "../src/row";
import { shardStub } from "../src/shard";

/** The time in microseconds since 1970 for the calls of a request. Without it, the real clock counts. */
const CLOCK_HEADER = "Penstock-Test-Clock";

interface TimedBatch {
  testNow?: number;
}

export class LimiterObject extends ProductionObject {
  protected override now(batch: TimedBatch): number {
    return batch.testNow ?? super.now(batch);
  }

  /** stats returns the number of rows that this instance has written, and the state of the storage. */
  async stats(): Promise<object> {
    const count = (query: string) => this.ctx.storage.sql.exec<{ n: number }>(query).one().n;
    return {
      written: count("SELECT total_changes() AS n"),
      records: count("SELECT count(*) AS n FROM record"),
      leases: count("SELECT count(*) AS n FROM lease"),
      alarm: await this.ctx.storage.getAlarm(),
      instance: this.instance,
    };
  }

  /** sweepAt does what the alarm does. */
  async sweepAt(now: number): Promise<void> {
    await this.ctx.storage.deleteAlarm();
    this.alarms.fired();
    this.sweep(now);
  }

  /** runAlarm lets the runtime run the alarm soon, in a later millisecond. */
  async runAlarm(): Promise<void> {
    await this.ctx.storage.setAlarm(Date.now() + 10);
  }

  /** loseAlarm does what the runtime does after the alarm has failed several times. */
  async loseAlarm(minutesAgo: number): Promise<void> {
    await this.ctx.storage.deleteAlarm();
    Object.assign(this.alarms, { at: Date.now() - minutesAgo * 60_000 });
  }

  /** fail makes later calls throw, until the object restarts. */
  fail(): void {
    this.failing = true;
  }

  override async limit(batch: Batch<Call>): Promise<(CallReply | null)[]> {
    this.throwIfFailing();
    return super.limit(batch);
  }

  override handOverRows(keys: string[]): Row[] {
    this.throwIfFailing();
    return super.handOverRows(keys);
  }

  /** abort restarts the object without any of what has not been stored. */
  abort(): void {
    this.ctx.abort("test");
  }

  private throwIfFailing(): void {
    if (this.failing) {
      throw new Error("a text that no response may contain");
    }
  }

  private failing = false;
  private readonly instance = crypto.randomUUID();
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const shard = Number(url.searchParams.get("shard") ?? 0);
    const object = shardStub(env as unknown as Env, shard) as unknown as DurableObjectStub<LimiterObject>;
    switch (url.pathname) {
      case "/test/stats":
        return Response.json(await object.stats());
      case "/test/sweep":
        await object.sweepAt(Number(url.searchParams.get("now")));
        return new Response();
      case "/test/alarm":
        await object.runAlarm();
        return new Response();
      case "/test/lose-alarm":
        await object.loseAlarm(Number(url.searchParams.get("minutes")));
        return new Response();
      case "/test/fail":
        await object.fail();
        return new Response();
      case "/test/abort":
        await Promise.allSettled([object.abort()]);
        return new Response();
    }
    const clock = request.headers.get(CLOCK_HEADER);
    if (clock === null) {
      return handle(request, env, 1000);
    }
    const testNow = Number(clock);
    if (!Number.isSafeInteger(testNow) || testNow < 1) {
      return new Response("invalid test clock", { status: 400 });
    }
    return handle(request, { ...env, LIMITER: withClock(env.LIMITER, testNow) }, 1);
  },
} satisfies ExportedHandler<Env>;

/** withClock adds the time to each batch that is sent to an object. */
function withClock(namespace: Env["LIMITER"], testNow: number): Env["LIMITER"] {
  const wrapped = {
    idFromName: (name: string) => namespace.idFromName(name),
    get: (id: DurableObjectId) => {
      const stub = namespace.get(id);
      type Operation = (batch: object) => Promise<unknown>;
      const timed = (send: unknown) => (batch: object) => (send as Operation)({ ...batch, testNow });
      return {
        limit: timed((batch: never) => stub.limit(batch)),
        semaphore: timed((batch: never) => stub.semaphore(batch)),
      };
    },
  };
  return wrapped as unknown as Env["LIMITER"];
}
