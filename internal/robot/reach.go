package robot

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// traced returns a context for one request, and a function that reports whether the request may
// have reached the service although it failed. It has not if it never got a connection.
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
		return !noConnection(err) // only net/http's transport is traced
	}
}

func noConnection(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial" ||
		errors.As(err, new(*net.DNSError)) || errors.As(err, new(*tls.CertificateVerificationError))
}
