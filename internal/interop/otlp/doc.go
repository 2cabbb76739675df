// Package otlp tests module otel with an exporter for OTLP, and with a collector of OpenTelemetry.
package otlp
