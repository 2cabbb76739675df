// Package aisdk tests adapters/aisdk with the published package ai in Node.js: its class
// WebSocketChatTransport, and useChat of @ai-sdk/react in jsdom.
package aisdk
