package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
)

// HTTPCheck returns a Check as load balancers do it: status 200 of GET /healthz is healthy. Each
// check opens a connection, as clients do: an existing connection works on when new connections
// find a closed port or a full table.
func HTTPCheck() Check {
	dialer := &net.Dialer{KeepAlive: -1}
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 1 << 14,
			DialContext: dialer.DialContext, // without the environment's proxy
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, at netip.AddrPort) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/healthz",
			nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case err != nil:
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("asking %s for its health: %w: %s", at, ErrUnready, response.Status)
		}
		return nil
	}
}
