// Code generated from docs/protocol.json. DO NOT EDIT.

export interface ErrorPayload {
    code: string;
    message?: string;
    details?: Record<string, unknown>;
    retryable: boolean;
    retryAfterMs?: number | null;
}

export interface LimitDetails {
    kind: string;
    observed: number;
    limit: number;
    reason?: string;
    policy?: string;
}

export interface Hello {
    version?: number;
    session?: boolean;
    trace?: boolean;
}

export interface Welcome {
    version?: number;
    connId: string;
    pingIntervalMs: number;
    pongTimeoutMs: number;
    maxMessageBytes: number;
    maxMessageBytesByType?: Record<string, number>;
    callTimeoutMs: number;
    callTimeoutMsByType?: Record<string, number>;
    concurrency: number;
    limits?: Limit[];
    contractHash?: string;
    session?: SessionGrant;
}

export interface SessionGrant {
    token: string;
    resumeWithinMs: number;
}

export interface Limit {
    name: string;
    capacity: number;
    refill: number;
    refillMs: number;
    scope: string;
    buckets: Bucket[];
}

export interface Bucket {
    costs: Record<string, number | null>;
    keep?: Record<string, number>;
}

export interface Auth {
    token: string;
}

export interface Authenticated {
    expiresInMs?: number;
}

export interface IdentityExpiring {
    expiresInMs: number;
}

export interface GoAway {
    reconnectAfterMs: number;
}

export interface StreamEnd {
}

export interface Subscribe {
    topic: string;
    presence?: boolean;
    hidden?: boolean;
    positions?: boolean;
    epoch?: string;
    offset?: number;
    state?: boolean;
    last?: number;
}

export interface Subscribed extends Partial<Position>, Partial<Recovery> {
    topic: string;
    members?: Member[];
}

export interface Position {
    epoch: string;
    offset: number;
}

export interface Recovery {
    recovered: boolean;
    ended?: Position;
    state?: number;
    more?: boolean;
}

export interface Unsubscribe {
    topic: string;
}

export interface Unsubscribed {
    topic: string;
    error?: ErrorPayload;
}

export interface Moved {
    topic: string;
    epoch: string;
    offset: number;
    lost?: Lost;
    ended?: Position;
    reset?: boolean;
}

export interface Lost {
    from: number;
    to: number;
}

export interface StateComplete {
    topic: string;
}

export interface Member {
    connId: string;
    tenantId?: string;
    userId?: string;
    info?: string;
}

export interface PresenceChanged {
    topic: string;
    joined: Member[];
    left: Member[];
}

export interface Resume {
    token: string;
    topics?: Subscribe[];
}

export interface Resumed {
    session?: SessionGrant;
    memberId: string;
    topics: ResumedTopic[];
}

export interface ResumedTopic extends Subscribed {
    error?: ErrorPayload;
}

/** The payloads of the messages that have one, by type. */
export interface Payloads {
    ERROR: ErrorPayload;
    RPC_ERROR: ErrorPayload;
    "$ws:hello": Hello;
    "$ws:welcome": Welcome;
    "$ws:auth": Auth;
    "$ws:authenticated": Authenticated;
    "$ws:identity-expiring": IdentityExpiring;
    "$ws:goaway": GoAway;
    "$ws:stream-end": StreamEnd;
    "$ws:subscribe": Subscribe;
    "$ws:subscribed": Subscribed;
    "$ws:unsubscribe": Unsubscribe;
    "$ws:unsubscribed": Unsubscribed;
    "$ws:position": Moved;
    "$ws:state": StateComplete;
    "$ws:presence": PresenceChanged;
    "$ws:resume": Resume;
    "$ws:resumed": Resumed;
}

/** The types of the replies to the calls of the protocol. */
export interface Replies {
    "$ws:hello": "$ws:welcome";
    "$ws:auth": "$ws:authenticated";
    "$ws:subscribe": "$ws:subscribed";
    "$ws:unsubscribe": "$ws:unsubscribed";
    "$ws:resume": "$ws:resumed";
}
