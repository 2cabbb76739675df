/** Time between two sweeps, in milliseconds. */
const INTERVAL = 10 * 60 * 1000;
/** An alarm that is overdue for this time in milliseconds has failed too often and is lost. */
const OVERDUE = 5 * 60 * 1000;
/** Time in milliseconds between two parts of a sweep, in which calls can run. */
const PAUSE = 20;

/** SweepAlarm sets the alarm of an object, which removes rows. */
export class SweepAlarm {
  /** Time of the alarm in milliseconds since 1970; null if none is set. */
  private at: number | null = null;

  constructor(private readonly storage: DurableObjectStorage) {}

  /** load reads the alarm that an earlier instance of the object has set. */
  async load(): Promise<void> {
    this.at = await this.storage.getAlarm();
  }

  /** fired records that the alarm has run. */
  fired(): void {
    this.at = null;
  }

  /**
   * plan sets an alarm for a row that can be removed at a time in milliseconds since 1970, unless
   * there is one. Each change of the alarm costs a written row, so it is set at most once between
   * two sweeps, or once more if a row can be removed long before those that were stored earlier.
   */
  plan(removableAt: number): void {
    const now = Date.now();
    const wanted = Math.max(removableAt, now + INTERVAL);
    if (this.at === null || this.at > wanted || this.at < now - OVERDUE) {
      this.set(wanted);
    }
  }

  /** runAgain sets an alarm that runs soon, while another one runs. */
  runAgain(): void {
    // With the time of the running alarm, the runtime would sometimes not run it again.
    this.set(Date.now() + PAUSE);
  }

  private set(at: number): void {
    this.at = at;
    // Replies wait for this write too; if it fails, the runtime restarts the object.
    void this.storage.setAlarm(at);
  }
}
