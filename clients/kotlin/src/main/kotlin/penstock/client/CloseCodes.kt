// Code generated from docs/protocol.json. DO NOT EDIT.

package penstock.client

internal val STOP = setOf(4403, 4409)
internal val VIOLATION = setOf(1002, 1003, 1007)
internal val RESTART = setOf(1012, 4503)
internal val BUSY = setOf(1013, 4429)
internal const val UNAUTHENTICATED = 4401

internal const val LEAST_DELAY = 0.1
internal const val MIN_BACKOFF = 0.5
internal const val MAX_BACKOFF = 20.0
internal const val BUSY_BACKOFF = 5.0
internal const val RESTART_SPREAD = 10.0
internal const val HEALTHY_AFTER = 5.0
