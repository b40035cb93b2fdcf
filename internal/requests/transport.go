package requests

import (
	"net"
	"net/http"
	"time"
)

const (
	// pingAfter is how long a connection may be silent before the other end is asked for a sign (an
	// HTTP/2 PING), and pingWithin how long that may take. Together they are well below the time
	// that a request may take, so that it is sent again in time over a new connection.
	pingAfter, pingWithin = 3 * time.Second, 3 * time.Second
	dialWithin            = 10 * time.Second
)

// NewTransport returns the way to a cloud's API. A connection that leads nowhere, as when a NAT
// gateway has forgotten it, is given up within seconds: without pings, every request that follows on
// it would run out of time, since the end of a request ends its stream and not the connection.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialWithin}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialWithin, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}
}
