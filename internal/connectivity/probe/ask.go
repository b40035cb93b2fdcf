//go:build linux

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

const (
	atOnce = 16
	// again is the pause before a failed trial is repeated.
	again = 300 * time.Millisecond
)

// TryAll runs all trials and returns the results in their order. It repeats failed trials until
// settle is over, because Services and neighbors take time to be programmed.
func TryAll(
	ctx context.Context, trials []connectivity.Trial, settle time.Duration,
) []connectivity.Result {
	until := time.Now().Add(settle)
	results := make([]connectivity.Result, len(trials))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, t := range trials {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			results[i] = settled(ctx, t, until)
		})
	}
	all.Wait()
	return results
}

func settled(ctx context.Context, t connectivity.Trial, until time.Time) connectivity.Result {
	for {
		r := once(ctx, t)
		if r.Failure == "" || time.Now().After(until) {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(again):
		}
	}
}

func once(ctx context.Context, t connectivity.Trial) connectivity.Result {
	r := connectivity.Result{Trial: t}
	var err error
	switch t.Kind {
	case connectivity.TCP:
		err = exchange(ctx, "tcp", &r)
	case connectivity.UDP:
		err = exchange(ctx, "udp", &r)
	case connectivity.MTU:
		err = tryMTU(ctx, &r)
	case connectivity.HTTP:
		err = tryHTTP(ctx, &r)
	case connectivity.Dial:
		err = dialed(ctx, &r)
	default:
		err = fmt.Errorf("this probe knows no trial %q: use an image of underlayctl's own version",
			t.Kind)
	}
	if err != nil && r.Failure == "" {
		r.Failure, r.Detail = judged(err)
	}
	return r
}

// judged converts an error to a failure, with a detail if that adds to it.
func judged(err error) (connectivity.Failure, string) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ETIMEDOUT):
		return connectivity.Silent, ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return connectivity.Refused, ""
	case errors.Is(err, syscall.EHOSTUNREACH):
		return connectivity.Unreachable, "no route to host"
	case errors.Is(err, syscall.ENETUNREACH):
		return connectivity.Unreachable, "network is unreachable"
	}
	return connectivity.Other, err.Error()
}

// dial connects, and sets the deadline for all reads and writes.
func dial(ctx context.Context, network string, r *connectivity.Result) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(ctx, network, r.At.String())
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

func dialed(ctx context.Context, r *connectivity.Result) error {
	began := time.Now()
	conn, err := dial(ctx, "tcp", r)
	if err != nil {
		return err
	}
	r.Took = time.Since(began).Microseconds()
	return conn.Close()
}

// exchange reads the server's name, over UDP after a datagram.
func exchange(ctx context.Context, network string, r *connectivity.Result) error {
	began := time.Now()
	conn, err := dial(ctx, network, r)
	if err != nil {
		return err
	}
	defer conn.Close()
	if network == "udp" {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
	}
	buffer := make([]byte, 512)
	n, err := conn.Read(buffer)
	if err != nil {
		return err
	}
	r.Took = time.Since(began).Microseconds()
	name, _, _ := strings.Cut(strings.TrimSpace(string(buffer[:n])), " ")
	identify(r, name)
	return nil
}

// identify checks the name of the server on paths with only one valid server.
func identify(r *connectivity.Result, name string) {
	if r.Path == connectivity.Pod && name != r.To {
		r.Failure, r.Detail = connectivity.Stranger, fmt.Sprintf("%.63q", name)
	}
}

func tryHTTP(ctx context.Context, r *connectivity.Result) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.At.String()+"/healthz",
		nil)
	if err != nil {
		return err
	}
	began := time.Now()
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	r.Took = time.Since(began).Microseconds()
	if response.StatusCode != http.StatusOK {
		r.Failure, r.Detail = connectivity.Status, response.Status
	}
	return nil
}

// Run runs the trials from a node. It reads the targets, a connectivity.World as JSON, and
// writes the results for connectivity.ReadResults.
func Run(ctx context.Context, from, world string, settle time.Duration, out io.Writer) error {
	var w connectivity.World
	if err := json.Unmarshal([]byte(world), &w); err != nil {
		return fmt.Errorf("the destinations can't be read: %w", err)
	}
	return connectivity.WriteResults(out, TryAll(ctx, connectivity.Plan(from, w), settle))
}
