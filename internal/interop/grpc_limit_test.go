package interop_test

import (
	"context"
	"net/netip"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/penstock-go/penstock/limit"
)

// rateLimit returns an interceptor that charges one token per call to the client's address. A
// rejected client receives RESOURCE_EXHAUSTED with the standard RetryInfo.
func rateLimit(limiter limit.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		d, err := limit.Consume(ctx, limiter, peerKey(ctx), 1)
		switch {
		case err != nil: // only with a limiter on Redis: it could not decide
			return nil, status.Error(codes.Unavailable, "limits cannot be checked")
		case d.Allowed:
			return next(ctx, req)
		case d.RetryAfter == limit.Never:
			return nil, status.Error(codes.FailedPrecondition, "the call costs more than the limit can ever allow")
		}
		exhausted, err := status.New(codes.ResourceExhausted, "too many calls").
			WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
		if err != nil {
			return nil, err
		}
		return nil, exhausted.Err()
	}
}

// peerKey returns the key of the client's address. Calls without an address share a bucket.
func peerKey(ctx context.Context) limit.Key {
	client, ok := peer.FromContext(ctx)
	if !ok {
		return limit.Key{"unknown"}
	}
	addr, err := netip.ParseAddrPort(client.Addr.String())
	if err != nil {
		return limit.Key{"unknown"}
	}
	ip := addr.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return limit.Key{"ip", ip.String()}
	}
	return limit.Key{"ip", netip.PrefixFrom(ip, 64).Masked().String()}
}
