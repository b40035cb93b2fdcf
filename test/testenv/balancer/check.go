package balancer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// bodyMost limits how much of a body is searched for the response that a check expects, in bytes.
const bodyMost = 64 << 10

// probe carries out a health check. It has no result after ctx has ended, nor for a load balancer
// that is so new that it isn't followed yet.
func (b *balancer) probe(ctx context.Context, p hcloudsim.Probe) hcloudsim.Finding {
	b.mu.Lock()
	lb, known := b.known[p.LoadBalancer]
	b.mu.Unlock()
	if !known {
		return hcloudsim.Finding{}
	}
	found := hcloudsim.Finding{Health: hcloudsim.HealthHealthy}
	if err := b.check(ctx, lb, p); err != nil {
		b.Logger.Debug("a health check has failed", "loadBalancer", lb.ID, "port", p.Service.ListenPort, "target", p.Address, "err", err)
		found = hcloudsim.Finding{Health: hcloudsim.HealthUnhealthy, Detail: hcloudsim.DetailUnspecified}
		if why := (*failure)(nil); errors.As(err, &why) {
			found.Detail, found.HTTPStatus = why.detail, why.status
		}
	}
	switch {
	case ctx.Err() != nil:
		return hcloudsim.Finding{}
	case b.Checked != nil:
		b.Checked(p, found.Health)
	}
	return found
}

// failure is a failed check, with the cloud's name of the reason.
type failure struct {
	error
	detail hcloudsim.Detail
	status int
}

func (f *failure) Unwrap() error { return f.error }

// failed is a failure of one kind, or a timeout if the time is over.
func failed(ctx context.Context, err error, kind, late hcloudsim.Detail) error {
	if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		kind = late
	}
	return &failure{error: err, detail: kind}
}

// check returns why a target is not healthy. It begins with a PROXY header in the cases in which
// the cloud's checks do; a server may not understand it.
func (b *balancer) check(
	ctx context.Context, lb hcloudsim.PlaneLoadBalancer, p hcloudsim.Probe,
) error {
	check := p.Service.HealthCheck
	if !p.Address.IsValid() {
		return errors.New("the target has no address that the load balancer can reach")
	}
	deadline := time.Now().Add(time.Duration(check.Timeout) * time.Second)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	to := netip.AddrPortFrom(p.Address, uint16(check.Port))
	conn, err := b.Network.Dial(ctx, sourceOf(lb, p.Address), to)
	if err != nil {
		return failed(ctx, err, hcloudsim.DetailNoConnection, hcloudsim.DetailTimeout4)
	}
	defer conn.Close()
	if p.ProxyHeader {
		header := Header{
			Source: netip.AddrPortFrom(sourceOf(lb, p.Address), portOf(conn.LocalAddr())), Destination: to,
		}
		if _, err := conn.Write(header.Append(nil, b.Header)); err != nil {
			return fmt.Errorf("sending a PROXY header: %w", err)
		}
	}
	if check.Protocol != "http" || check.HTTP == nil {
		return nil
	}
	defer atEnd(ctx, func() { _ = conn.Close() })()
	return query(ctx, conn, to, check.HTTP)
}

// portOf is the port of a TCP address.
func portOf(a net.Addr) uint16 {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return 0
	}
	return uint16(tcp.Port)
}

// query sends the request of an HTTP check and evaluates the response. It follows no redirects and
// verifies no certificates.
func query(
	ctx context.Context, conn net.Conn, to netip.AddrPort,
	check *schema.LoadBalancerServiceHealthCheckHTTP,
) error {
	host, scheme := check.Domain, "http"
	if host == "" {
		host = to.String()
	}
	if check.TLS {
		scheme = "https"
		conn = tls.Client(conn, &tls.Config{ServerName: check.Domain, InsecureSkipVerify: true})
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+check.Path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "underlay-test-balancer")
	request.Close = true
	if err := request.Write(conn); err != nil {
		return failed(ctx, fmt.Errorf("asking: %w", err), hcloudsim.DetailUnspecified, hcloudsim.DetailTimeout7)
	}
	reply, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return failed(ctx, fmt.Errorf("reading the response: %w", err), hcloudsim.DetailUnspecified, hcloudsim.DetailTimeout7)
	}
	defer reply.Body.Close()
	if !accepted(check.StatusCodes, reply.StatusCode) {
		err := fmt.Errorf("status is %d, want one of %v", reply.StatusCode, check.StatusCodes)
		return &failure{error: err, detail: hcloudsim.DetailHTTPStatus, status: reply.StatusCode}
	}
	if check.Response == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, bodyMost))
	if err != nil {
		return failed(ctx, fmt.Errorf("reading the body: %w", err), hcloudsim.DetailUnspecified, hcloudsim.DetailTimeout7)
	}
	if !strings.Contains(string(body), check.Response) {
		return &failure{error: fmt.Errorf("the body lacks %q", check.Response), detail: hcloudsim.DetailHTTPContent}
	}
	return nil
}

// accepted reports whether a status code matches one of a check's patterns, in which ? stands for
// one digit and * for any number of them.
func accepted(codes []string, status int) bool {
	return slices.ContainsFunc(codes, func(code string) bool {
		ok, err := path.Match(code, strconv.Itoa(status))
		return ok && err == nil
	})
}
