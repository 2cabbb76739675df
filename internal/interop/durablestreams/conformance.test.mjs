import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.PENSTOCK_URL, longPollTimeoutMs: 500 });
