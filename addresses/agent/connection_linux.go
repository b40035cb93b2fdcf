package agent

import (
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// How soon a connection is known to lead nowhere.
const (
	// pingEvery is how long the API server may say nothing before it is asked for a sign (an HTTP/2
	// PING, which proxies that only pass bytes pass on), and pingWithin how long that may take.
	pingEvery, pingWithin = time.Second, time.Second
	// unacknowledged is how long the kernel may send in vain (TCP_USER_TIMEOUT, tcp(7)).
	unacknowledged = 2 * time.Second
	dialWithin     = time.Second
)

// Connect makes a client of the API server with a connection of its own, which ends within about
// three seconds when nobody answers any more. Others wait for up to a minute, because to them a
// broken connection costs more than a late one.
func Connect(to *rest.Config) (kubernetes.Interface, error) {
	const preparing = "preparing the client that reads the ledger of addresses: %w"
	trust, err := rest.TLSConfigFor(to)
	if err != nil {
		return nil, fmt.Errorf(preparing, err)
	}
	dialer := &net.Dialer{
		Timeout:         dialWithin,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				limit := int(unacknowledged.Milliseconds())
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, limit)
			})
			if err != nil {
				return err
			}
			return failed
		},
	}
	transport := &http.Transport{
		TLSClientConfig: trust, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialWithin, IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingWithin},
	}
	wrapped, err := rest.HTTPWrappersForConfig(to, transport)
	if err != nil {
		return nil, fmt.Errorf(preparing, err)
	}
	// No limit of the rate: it asks for one object, and pauses by itself.
	narrow := rest.CopyConfig(to)
	narrow.QPS = -1
	client, err := kubernetes.NewForConfigAndClient(narrow, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf(preparing, err)
	}
	return client, nil
}
