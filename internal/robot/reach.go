package robot

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// traced returns a context for one request, and what reports whether the request
// may have reached the service, though it ended with an error. It has not if it
// never got a connection, for whatever reason.
func traced(ctx context.Context) (_ context.Context, reached func(error) bool) {
	var wanted, connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	return ctx, func(err error) bool {
		if wanted.Load() {
			return connected.Load()
		}
		return !noConnection(err) // a transport that isn't net/http's tells nothing
	}
}

// noConnection reports whether an error is one of connecting.
func noConnection(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial" ||
		errors.As(err, new(*net.DNSError)) || errors.As(err, new(*tls.CertificateVerificationError))
}
