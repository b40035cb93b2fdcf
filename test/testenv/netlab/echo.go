//go:build linux

package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// askWithin is how long one question may take. Only one that is not to be
// answered at all takes that long.
const askWithin = 2 * time.Second

// Echo tells whoever asks who it is and which address the question came from.
// Over TCP it writes a line and closes; over UDP each packet is answered by one
// that begins with that line and ends with the packet.
type Echo struct {
	name  string
	tcp   net.Listener
	udp   net.PacketConn
	ended sync.WaitGroup
}

// Answer is what an Echo says.
type Answer struct {
	// Name is who answered.
	Name string
	// Source is where the question came from, as it was seen there.
	Source netip.AddrPort
}

// Serve lets a namespace answer under a name on a port, in both families, TCP
// and UDP, until Close or the lab's end. Over UDP a host with several
// addresses may answer from another one than it was asked at.
func (f *Lab) Serve(ctx context.Context, ns *netns.Namespace, name string, port uint16) (*Echo, error) {
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
	e := &Echo{name: name}
	address := fmt.Sprintf(":%d", port)
	var err error
	if e.tcp, err = ns.Listen(ctx, "tcp", address); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if e.udp, err = ns.ListenPacket(ctx, "udp", address); err != nil {
		_ = e.tcp.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := roomy(e.udp); err != nil {
		e.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e.ended.Go(e.serveTCP)
	e.ended.Go(e.serveUDP)
	return e, nil
}

// roomy lets a socket hold what comes while its process doesn't run: on a busy
// machine that would look as if the network lost it.
func roomy(socket any) error {
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, failed)
}

// Close ends it. It may be called more than once.
func (e *Echo) Close() {
	_ = e.tcp.Close()
	_ = e.udp.Close()
	e.ended.Wait()
}

func (e *Echo) line(from net.Addr) string { return fmt.Sprintf("%s %s\n", e.name, from) }

func (e *Echo) serveTCP() {
	for {
		conn, err := e.tcp.Accept()
		if err != nil {
			return
		}
		// Few enough bytes to fit into the socket's buffer: this doesn't block.
		_, _ = conn.Write([]byte(e.line(conn.RemoteAddr())))
		_ = conn.Close()
	}
}

func (e *Echo) serveUDP() {
	packet := make([]byte, 2048)
	for {
		n, from, err := e.udp.ReadFrom(packet)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			_, _ = e.udp.WriteTo(append([]byte(e.line(from)), packet[:n]...), from)
		}
	}
}

// Ask asks an Echo from a namespace, over "tcp" or "udp". What isn't answered
// within seconds is an error; over UDP it is asked once only.
func Ask(ctx context.Context, from *netns.Namespace, network string, to netip.AddrPort) (Answer, error) {
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
	return parseAnswer(line)
}

func parseAnswer(line string) (Answer, error) {
	name, source, _ := strings.Cut(strings.TrimSpace(line), " ")
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("an answer that no Echo gives, %q: %w", line, err)
	}
	return Answer{name, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}, nil
}
