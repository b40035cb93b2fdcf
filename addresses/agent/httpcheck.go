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

// HTTPCheck makes a Check that asks as load balancers do: GET /healthz, and healthy is who answers
// 200. Each one opens a connection of its own, because that is what clients do: an old connection
// works on where new ones find no port, or no room in a table.
func HTTPCheck() Check {
	dialer := &net.Dialer{KeepAlive: -1}
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 1 << 14,
			DialContext: dialer.DialContext, // and no proxy, whatever the environment says
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, at netip.AddrPort) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/healthz", nil)
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
