//go:build linux

package netlab

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/echo"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// askWithin limits one request. Only a request that gets no reply at all takes that long.
const askWithin = 2 * time.Second

// Echo is an echo server in a namespace, Answer its reply.
type (
	Echo   = echo.Server
	Answer = echo.Answer
)

// Serve runs an echo server under a name on a port of a namespace, for both families, TCP and UDP,
// until Close or the lab's end. Over UDP, a host with several addresses may reply from another one
// than the request's destination.
func (f *Lab) Serve(
	ctx context.Context, ns *netns.Namespace, name string, port uint16,
) (*Echo, error) {
	e, err := serve(ctx, ns, name, port)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.echoes = append(f.echoes, e)
	return e, nil
}

func serve(ctx context.Context, ns *netns.Namespace, name string, port uint16) (*Echo, error) {
	address := fmt.Sprintf(":%d", port)
	tcp, err := ns.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	udp, err := ns.ListenPacket(ctx, "udp", address)
	if err != nil {
		_ = tcp.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e := echo.Serve(name, tcp, udp)
	if err := echo.Roomy(udp); err != nil {
		e.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}

// Ask sends a request to an Echo from a namespace, over "tcp" or "udp". It returns an error if
// there is no reply within seconds; over UDP it sends one packet only.
func Ask(
	ctx context.Context, from *netns.Namespace, network string, to netip.AddrPort,
) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	conn, err := from.Dial(ctx, network, to.String())
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return Answer{}, err
	}
	if network == "udp" {
		if _, err := conn.Write([]byte("?")); err != nil {
			return Answer{}, err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return Answer{}, fmt.Errorf("asking %s over %s: %w", to, network, err)
	}
	return echo.Parse(line)
}
