package agent

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// pingEvery is the idle time before an HTTP/2 PING, which TCP proxies forward, and pingWithin
	// limits the wait for its reply.
	pingEvery, pingWithin = time.Second, time.Second
	dialWithin            = time.Second
)

// Connect returns a client of the API server with its own connection, which ends within about three
// seconds when the server stops responding. Other clients wait for up to a minute, because a
// needless reconnect costs them more than a late detection.
func Connect(to *rest.Config) (kubernetes.Interface, error) {
	const preparing = "preparing the client that reads the ledger of addresses: %w"
	trust, err := rest.TLSConfigFor(to)
	if err != nil {
		return nil, fmt.Errorf(preparing, err)
	}
	transport := &http.Transport{
		TLSClientConfig: trust, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{
			Timeout: dialWithin,
			KeepAliveConfig: net.KeepAliveConfig{ // over HTTP/1.1 there are no pings
				Enable: true, Idle: pingEvery, Interval: pingEvery, Count: 3,
			},
		}).DialContext,
		TLSHandshakeTimeout: dialWithin, IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingWithin},
	}
	wrapped, err := rest.HTTPWrappersForConfig(to, transport)
	if err != nil {
		return nil, fmt.Errorf(preparing, err)
	}
	// No rate limit: Reader reads one object, and pauses between attempts.
	narrow := rest.CopyConfig(to)
	narrow.QPS = -1
	client, err := kubernetes.NewForConfigAndClient(narrow, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf(preparing, err)
	}
	return client, nil
}
