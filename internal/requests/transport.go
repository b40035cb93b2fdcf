package requests

import (
	"net"
	"net/http"
	"time"
)

const (
	// pingAfter is the time without data on a connection until an HTTP/2 PING is sent, and
	// pingWithin the timeout of its acknowledgment. Their sum is well below a request's timeout,
	// so that the request is retried in time over a new connection.
	pingAfter, pingWithin = 3 * time.Second, 3 * time.Second
	dialWithin            = 10 * time.Second
)

// NewTransport returns a transport to a cloud's API. It closes a dead connection, for example
// one that a NAT gateway has dropped, within seconds: without pings, every later request on it
// would time out, because the end of a request closes its stream but not the connection.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialWithin}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialWithin, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}
}
