// Package deflate negotiates permessage-deflate (RFC 7692), and keeps the windows of connections whose messages
// refer to earlier ones. It compresses short messages with them; package wsconn has compressors for all others,
// and knows connections. Nothing here is safe for concurrent use.
package deflate
